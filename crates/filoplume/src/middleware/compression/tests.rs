//! Which responses are compressed, and what that costs.

use super::*;

#[test]
fn text_is_compressible_and_images_are_not() {
    let compression = Compression::new();
    for yes in [
        "text/html; charset=utf-8",
        "Text/CSS",
        "application/problem+json",
        "image/svg+xml",
        "application/json",
    ] {
        assert!(compression.compresses_type(yes), "{yes}");
    }
    for no in [
        "",
        "image/png",
        "application/zip",
        "font/woff2",
        "application/octet-stream",
        "text/event-stream; a=b",
        "video/mp4",
    ] {
        assert!(!compression.compresses_type(no), "{no}");
    }
    let all = Compression::new().types(|_| true);
    assert!(all.compresses_type("image/png"));
    assert!(!all.compresses_type("text/event-stream"));
}

#[test]
fn a_strong_tag_becomes_weak_and_a_weak_one_is_kept() {
    let mut headers = Headers::new();
    for (before, after) in [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\""), ("nonsense", "nonsense")]
    {
        headers.insert("etag", before).unwrap();
        weaken_etag(&mut headers).unwrap();
        assert_eq!(headers.get_str("etag"), Some(after));
    }
}

#[test]
fn a_level_beyond_the_last_one_is_the_last() {
    let gzip = |level| Compression::new().gzip_level(level).levels.gzip;
    assert_eq!((gzip(0), gzip(1), gzip(9), gzip(200)), (1, 1, 9, 9));
}

fn response(status: u16, fields: &[(&str, &str)]) -> Response {
    let mut response = Response::new(status);
    *response.body_mut() = ResponseBody::Bytes(Bytes::from(vec![b'x'; 2000]));
    for (name, value) in [("content-type", "text/plain")].iter().chain(fields) {
        response.set_header(name, value).unwrap();
    }
    response
}

#[test]
fn a_whole_response_is_compressed_unless_something_depends_on_its_bytes() {
    let compression = Compression::new();
    for status in [200, 201, 203, 207, 404, 500] {
        assert!(compression.is_eligible(&response(status, &[])), "{status}");
    }
    for status in [204, 205, 206] {
        assert!(!compression.is_eligible(&response(status, &[])), "{status}");
    }
    for name in ["content-encoding", "content-range", "content-digest", "repr-digest", "digest"] {
        assert!(!compression.is_eligible(&response(200, &[(name, "x")])), "{name}");
    }
}

/// Such a part is the same for all clients.
#[test]
fn a_part_of_coded_content_does_not_vary() {
    let compression = Compression::new();
    assert!(compression.is_eligible_part(&response(206, &[])));
    assert!(!compression.is_eligible_part(&response(200, &[])));
    assert!(!compression.is_eligible_part(&response(206, &[("content-encoding", "br")])));
    assert!(!compression.is_eligible_part(&response(206, &[("cache-control", "no-transform")])));
}

#[test]
fn content_that_others_keep_costs_no_memory() {
    let compression = Compression::new();
    let held =
        |bytes: &Bytes| compression.held_bytes(&ResponseBody::Bytes(bytes.clone()), Coding::Gzip);
    let shared = Bytes::from(vec![b'x'; 2000]);
    let encoder = encoder_bytes(Coding::Gzip, compression.levels);
    assert_eq!(held(&shared), encoder);
    let own = ResponseBody::Bytes(Bytes::from(vec![b'x'; 2000]));
    assert_eq!(compression.held_bytes(&own, Coding::Gzip), encoder + 2000);
}

/// How much it is, only the engine can read.
#[test]
fn an_encoder_that_works_while_the_response_is_sent_counts_in_the_memory_budget() {
    for (length, is_counted) in [(STREAM_FROM_BYTES - 1, false), (STREAM_FROM_BYTES, true)] {
        let mut response = response(200, &[]);
        *response.body_mut() = ResponseBody::Bytes(Bytes::from(vec![b'x'; length]));
        Compression::new().compress(&mut response, Coding::Gzip, &Method::GET).unwrap();
        assert_eq!(!response.extensions().is_empty(), is_counted, "{length}");
    }
}
