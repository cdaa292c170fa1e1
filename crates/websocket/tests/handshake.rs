//! Handshakes that are accepted and refused, on both sides.

use filoplume_websocket::{ClientHandshake, HandshakeError, HandshakeRequest};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn fields<'a>() -> Vec<(&'a str, &'a str)> {
    vec![
        ("Host", "example.org"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ]
}

#[test]
fn a_handshake_is_accepted_or_refused() {
    use HandshakeError::*;
    let set = |name: &'static str, value: &'static str| {
        let mut fields = fields();
        fields.retain(|(other, _)| *other != name);
        fields.push((name, value));
        fields
    };
    let add = |name: &'static str, value: &'static str| {
        let mut fields = fields();
        fields.push((name, value));
        fields
    };
    let without = |name: &str| {
        let mut fields = fields();
        fields.retain(|(other, _)| *other != name);
        fields
    };
    let rows = [
        (fields(), None),
        (set("Upgrade", "h2c, WebSocket"), None),
        (set("Connection", "keep-alive,UPGRADE"), None),
        (add("Connection", "keep-alive"), None),
        (add("Upgrade", "h2c"), None),
        (add("sec-websocket-protocol", "a, b"), None),
        (without("Upgrade"), Some(UpgradeMissing)),
        (set("Upgrade", "websocket2"), Some(UpgradeMissing)),
        (without("Connection"), Some(ConnectionMissing)),
        (set("Connection", "close"), Some(ConnectionMissing)),
        (without("Sec-WebSocket-Version"), Some(VersionUnsupported)),
        (set("Sec-WebSocket-Version", "8"), Some(VersionUnsupported)),
        (set("Sec-WebSocket-Version", "13, 8"), Some(VersionUnsupported)),
        (add("Sec-WebSocket-Version", "13"), Some(VersionUnsupported)),
        (without("Sec-WebSocket-Key"), Some(KeyInvalid)),
        (set("Sec-WebSocket-Key", ""), Some(KeyInvalid)),
        (set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ"), Some(KeyInvalid)),
        (set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZSE="), Some(KeyInvalid)),
        (add("Sec-WebSocket-Key", KEY), Some(KeyInvalid)),
        (add("Sec-WebSocket-Protocol", "a,,b"), Some(SubprotocolsInvalid)),
        (add("Sec-WebSocket-Protocol", "a, a"), Some(SubprotocolsInvalid)),
        (add("Sec-WebSocket-Protocol", "a b"), Some(SubprotocolsInvalid)),
    ];
    for (fields, expected) in rows {
        let parsed = HandshakeRequest::parse("GET", fields.clone());
        assert_eq!(parsed.err(), expected, "{fields:?}");
    }
    // Names of methods are case-sensitive (RFC 9110 section 9.1).
    for method in ["POST", "get"] {
        let refused = HandshakeRequest::parse(method, fields()).map_err(HandshakeError::status);
        assert_eq!(refused.err(), Some(405), "{method}");
    }
}

#[test]
fn a_value_that_is_not_text_is_not_an_empty_one() {
    let sent = fields();
    let mut fields: Vec<(&str, &[u8])> =
        sent.iter().map(|&(name, value)| (name, value.as_bytes())).collect();
    fields.push(("Sec-WebSocket-Protocol", b"\xff"));
    let refused = HandshakeRequest::parse("GET", fields).err();
    assert_eq!(refused, Some(HandshakeError::SubprotocolsInvalid));
}

#[test]
fn offers_of_several_fields_are_one_list() {
    let mut fields = fields();
    fields.push(("Sec-WebSocket-Protocol", "a"));
    fields.push(("Sec-WebSocket-Extensions", "x"));
    fields.push(("Sec-WebSocket-Protocol", "b,c"));
    fields.push(("Sec-WebSocket-Extensions", "y; z"));
    let request = HandshakeRequest::parse("GET", fields).unwrap();
    assert_eq!(request.subprotocols().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(request.extensions(), "x, y; z");
    assert_eq!(request.choose_subprotocol(&["z", "c", "a"]), Some("c"));
    assert_eq!(request.choose_subprotocol(&["z"]), None);
}

#[test]
fn as_many_subprotocols_as_allowed_are_offered_and_no_more() {
    for (count, is_accepted) in [(32, true), (33, false)] {
        let names: Vec<_> = (0..count).map(|n| format!("protocol-{n}")).collect();
        let list = names.join(", ");
        let mut fields = fields();
        fields.push(("Sec-WebSocket-Protocol", &list));
        match HandshakeRequest::parse("GET", fields) {
            Ok(request) => {
                assert!(is_accepted, "{count}");
                assert_eq!(request.subprotocols().collect::<Vec<_>>(), names);
            }
            Err(error) => {
                assert!(!is_accepted, "{count}");
                assert_eq!(error, HandshakeError::SubprotocolsInvalid);
            }
        }
    }
}

#[test]
fn a_client_accepts_only_the_answer_to_its_key() {
    use HandshakeError::*;
    let handshake = ClientHandshake::new(*b"the sample nonce");
    let sent = HandshakeRequest::parse("GET", handshake.fields()).unwrap();
    let good = |name: &str| {
        [
            ("Upgrade".to_owned(), "websocket".to_owned()),
            ("Connection".to_owned(), "upgrade".to_owned()),
            ("Sec-WebSocket-Accept".to_owned(), sent.accept_key().to_owned()),
        ]
        .into_iter()
        .filter(|(other, _)| other != name)
        .collect::<Vec<_>>()
    };
    let with = |name: &str, value: &str| {
        let mut fields = good(name);
        fields.push((name.to_owned(), value.to_owned()));
        fields
    };
    let rows = [
        (101, good(""), None),
        (200, good(""), Some(StatusInvalid)),
        (100, good(""), Some(StatusInvalid)),
        (101, good("Upgrade"), Some(UpgradeMissing)),
        (101, good("Connection"), Some(ConnectionMissing)),
        (101, good("Sec-WebSocket-Accept"), Some(AcceptInvalid)),
        (101, with("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOp="), Some(AcceptInvalid)),
        (101, with("Sec-WebSocket-Protocol", "chat"), None),
        (101, with("Sec-WebSocket-Protocol", "other"), Some(SubprotocolUnexpected)),
    ];
    for (status, fields, expected) in rows {
        let verified = handshake.verify(status, fields.clone(), &["chat"]);
        assert_eq!(verified.err(), expected, "{status} {fields:?}");
    }
}
