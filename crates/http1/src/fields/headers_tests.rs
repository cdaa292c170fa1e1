//! Tests of the field map.

use super::*;

#[test]
fn names_are_compared_in_any_case_and_kept_as_written() {
    let mut headers = Headers::new();
    headers.append("X-Cat", "a").unwrap();
    headers.append("x-dog", "b").unwrap();
    headers.append("x-cat", "c").unwrap();
    assert_eq!(headers.get_all("X-CAT").collect::<Vec<_>>(), [b"a", b"c"]);
    headers.append("x-empty", "").unwrap();
    assert!(headers.contains("X-Empty") && !headers.contains("x-other"));
    headers.remove("x-empty");
    assert_eq!(
        headers.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["X-Cat", "x-dog", "x-cat"]
    );
    headers.insert("X-CAT", "d").unwrap();
    assert_eq!(headers.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["x-dog", "X-CAT"]);
    assert!(headers.remove("x-dog"));
    assert!(!headers.remove("x-dog"));
    assert_eq!(headers.len(), 1);
    headers.clear();
    assert!(headers.is_empty() && headers.bytes().is_empty());
}

#[test]
fn a_number_replaces_the_fields_of_its_name() {
    let name = HeaderName::from_static("x-id");
    let mut headers = Headers::new();
    headers.insert_hex(&name, 0x17f);
    assert_eq!(headers.bytes(), b"x-id: 0000000000000000000000000000017f\r\n");
    headers.append("x-other", "a").unwrap();
    headers.append("X-ID", "from a client").unwrap();
    headers.insert_hex(&name, u128::MAX);
    assert_eq!(headers.get_all("x-id").collect::<Vec<_>>(), [[b'f'; 32]]);
    assert_eq!(headers.get_str("x-other"), Some("a"));
}

#[test]
fn a_byte_that_could_end_a_field_is_refused_with_its_position() {
    let error =
        |name: &str, value: &[u8]| Headers::new().append(name, value).unwrap_err().to_string();
    assert_eq!(error("", b""), "field name is empty");
    assert_eq!(error("a b", b""), "field name has byte 0x20 at 1");
    assert_eq!(error("a:", b""), "field name has byte 0x3a at 1");
    assert_eq!(error("ä", b""), "field name has byte 0xc3 at 0");
    assert_eq!(error("a\r\nb", b""), "field name has byte 0x0d at 1");
    assert_eq!(error("a", b"b\r\nc: d"), "field value has byte 0x0d at 1");
    assert_eq!(error("a", b"b\nc"), "field value has byte 0x0a at 1");
    assert_eq!(error("a", b"\0"), "field value has byte 0x00 at 0");
    assert_eq!(error("a", b"b\x7f"), "field value has byte 0x7f at 1");
    assert_eq!(error("a", b"12345678\x1b"), "field value has byte 0x1b at 8");
}

#[test]
fn every_byte_of_a_value_is_checked_at_every_position() {
    for byte in 0..=255u8 {
        let legal = byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
        for at in 1..20 {
            let mut value = [b'x'; 21];
            value[at] = byte;
            assert_eq!(Headers::new().append("a", value).is_ok(), legal, "{byte:#04x} at {at}");
        }
    }
}

#[test]
fn a_refused_insert_changes_nothing() {
    let mut headers = Headers::new();
    headers.append("a", "b").unwrap();
    assert!(headers.insert("a", "\n").is_err());
    assert_eq!(headers.get_str("a"), Some("b"));
}

#[test]
fn whitespace_around_a_value_is_no_part_of_it() {
    let mut headers = Headers::new();
    headers.append("a", " \t b c \t").unwrap();
    assert_eq!(headers.get("a"), Some(b"b c".as_slice()));
}

#[test]
fn opaque_bytes_are_kept_and_are_not_a_str() {
    let mut headers = Headers::new();
    headers.append("a", b"\xff\xe4").unwrap();
    assert_eq!(headers.get("a"), Some(b"\xff\xe4".as_slice()));
    assert_eq!(headers.get_str("a"), None);
}

#[test]
fn a_header_map_converts_in_both_directions() {
    let mut headers = Headers::new();
    headers.append("a", "1").unwrap();
    headers.append("b", b"\xff").unwrap();
    headers.append("a", "2").unwrap();
    let map = HeaderMap::from(&headers);
    assert_eq!(map.get_all("a").iter().count(), 2);
    let back = Headers::from(&map);
    assert_eq!(back.get_all("a").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(back.get("b"), Some(b"\xff".as_slice()));
}

#[test]
fn a_map_that_is_filled_and_emptied_repeatedly_does_not_grow() {
    let mut headers = Headers::new();
    for _ in 0..100 {
        headers.insert("a", "b").unwrap();
    }
    assert!(headers.bytes().len() < 10);
}

#[test]
fn maps_are_equal_if_they_have_the_same_fields_in_the_same_order() {
    let make = |fields: &[(&str, &str)]| {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append(name, value).unwrap();
        }
        headers
    };
    assert_eq!(make(&[("a", "b"), ("c", "d")]), make(&[("A", "b"), ("c", "d")]));
    assert_ne!(make(&[("a", "b"), ("c", "d")]), make(&[("c", "d"), ("a", "b")]));
    assert_ne!(make(&[("a", "b")]), make(&[("a", "B")]));
    assert_eq!(make(&[("a", "b")]).clone(), make(&[("a", "b")]));
    assert_eq!(format!("{:?}", make(&[("a", "b")])), r#"{"a": "b"}"#);
}

#[test]
fn a_map_is_empty_if_it_has_neither_static_nor_stored_fields() {
    static STORED: StaticField = StaticField::new("cache-control: no-store\r\n");
    let mut headers = Headers::new();
    assert!(headers.is_empty());
    headers.insert_static(&STORED);
    assert!(!headers.is_empty());
    headers.append("a", "b").unwrap();
    assert!(!headers.is_empty());
    headers.remove("cache-control");
    assert!(!headers.is_empty());
    headers.remove("a");
    assert!(headers.is_empty());
}

#[test]
fn fields_are_sent_as_stored_until_one_is_removed() {
    static PLAIN: StaticField = StaticField::new("content-type: text/plain\r\n");
    let mut headers = Headers::new();
    headers.insert_static(&PLAIN);
    headers.append("a", "b").unwrap();
    headers.append("c", "d").unwrap();
    assert_eq!(
        headers.wire_lines(),
        Some((&b"content-type: text/plain\r\n"[..], &b"a: b\r\nc: d\r\n"[..]))
    );
    assert!(!headers.remove("e"));
    assert!(headers.wire_lines().is_some());
    assert!(headers.remove("a"));
    // The arena still contains the removed line.
    assert_eq!(headers.wire_lines(), None);
    assert!(!headers.remove("e"));
    assert_eq!(headers.wire_lines(), None);
    assert!(headers.remove("c"));
    assert_eq!(headers.wire_lines(), Some((&b"content-type: text/plain\r\n"[..], &b""[..])));
}

#[test]
fn fields_that_the_encoder_handles_are_not_sent_as_stored() {
    static CLOSE: StaticField = StaticField::new("connection: close\r\n");
    static OTHER: StaticField = StaticField::new("connections: many\r\n");
    let mut headers = Headers::new();
    headers.insert_static(&CLOSE);
    assert_eq!(headers.wire_lines(), None);
    let mut headers = Headers::new();
    headers.insert_static(&OTHER);
    assert!(headers.wire_lines().is_some());
}

#[test]
fn a_static_field_replaces_all_fields_of_its_name() {
    static PLAIN: StaticField = StaticField::new("content-type: text/plain\r\n");
    let lines =
        |headers: &Headers| headers.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    let mut headers = Headers::new();
    headers.append("Content-Type", "text/html").unwrap();
    headers.append("a", "b").unwrap();
    headers.insert_static(&PLAIN);
    assert_eq!(lines(&headers), ["a", "content-type"]);
    assert_eq!(headers.get_str("content-type"), Some("text/plain"));
    headers.insert_static(&PLAIN);
    assert_eq!(headers.len(), 2);
    headers.remove("a");
    headers.insert_static(&PLAIN);
    assert_eq!(lines(&headers), ["content-type"]);
}

#[test]
fn debug_of_every_type_hides_secrets() {
    static STATIC: StaticField = StaticField::new("x-api-key: s3same\r\n");
    let mut headers = Headers::new();
    headers.append("Set-Cookie", "id=s3same").unwrap();
    headers.append("x-plain", "plain").unwrap();
    headers.insert_static(&STATIC);
    let map = HeaderMap::from(&headers);
    let head = b"HTTP/1.1 200 OK\r\nSet-Cookie: id=s3same\r\nX-Plain: plain\r\n\r\n";
    let (head, _) = crate::parse_response_head(head, &http::Method::GET, &crate::Limits::default())
        .unwrap()
        .unwrap();
    let bytes = "115, 51, 115, 97, 109, 101";
    for shown in
        [format!("{headers:?}"), format!("{map:?}"), format!("{STATIC:?}"), format!("{head:?}")]
    {
        assert!(!shown.contains("s3same") && !shown.contains(bytes), "{shown}");
    }
    assert!(format!("{map:?} {head:?}").matches("plain\"").count() >= 2);
}

#[test]
fn a_copy_has_its_fields_checked_where_the_original_has() {
    let mut headers = Headers::new();
    headers.append("x", "y").unwrap();
    assert_eq!(headers.clone().wire_lines(), headers.wire_lines());
    assert!(headers.wire_lines().is_some());
    headers.append("content-length", "5").unwrap();
    assert_eq!(headers.clone().wire_lines(), None, "only the encoder may set it");
}
