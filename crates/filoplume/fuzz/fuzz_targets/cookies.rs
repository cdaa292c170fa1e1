//! Cookies that an app sets come back unchanged, signed and encrypted ones cannot be forged or
//! changed, and received cookies are parsed without guessing.

#![no_main]

use std::sync::LazyLock;

use filoplume::Key;
use filoplume::extract::COOKIES_MAX;
use filoplume::prelude::*;
use filoplume::testing::TestClient;
use filoplume_fuzz::{Answer, Seen, ask, is_field_value};
use libfuzzer_sys::fuzz_target;

/// The longest value. Encoded and signed, it still fits into a cookie.
const VALUE_BYTES_MAX: usize = 700;

struct Fixture {
    client: TestClient,
    received: Seen<Vec<(String, String)>>,
    /// The values of the plain, the signed and the encrypted cookie.
    values: Seen<[Option<String>; 3]>,
    to_send: Seen<String>,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let (received, values, to_send) = (Seen::default(), Seen::default(), Seen::default());
    let (all, three, text) = (Seen::clone(&received), Seen::clone(&values), Seen::clone(&to_send));
    let app = App::new()
        .get("/all", move |cookies: Cookies, State(key): State<Key>| {
            let found = cookies.received();
            for (name, _) in &found {
                assert_eq!(cookies.signed(&key).get(name), None, "nobody signed it");
                assert_eq!(cookies.encrypted(&key).get(name), None, "nobody encrypted it");
            }
            all.put(found);
        })
        .get("/set", move |cookies: Cookies, State(key): State<Key>| {
            let value: String = text.take().expect("there is something to send");
            cookies.set("plain", value.clone());
            cookies.signed(&key).set("signed", value.clone());
            cookies.encrypted(&key).set("encrypted", value);
        })
        .get("/get", move |cookies: Cookies, State(key): State<Key>| {
            let signed = cookies.signed(&key).get("signed");
            three.put([cookies.get("plain"), signed, cookies.encrypted(&key).get("encrypted")]);
        })
        .state(Key::from_secret([7; 64]).expect("it is long enough"));
    Fixture { client: app.test().without_cookies(), received, values, to_send }
});

/// Returns what a browser keeps of an answer: `name=value` of each cookie, in their order.
fn kept(answer: &Answer) -> Vec<String> {
    let lines =
        answer.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value);
    lines
        .map(|line| {
            let (pair, attributes) = line.split_once("; ").expect("there are attributes");
            assert_eq!(attributes, "HttpOnly; SameSite=Lax; Secure; Path=/");
            let (_, value) = pair.split_once('=').expect("it is a pair");
            let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
            assert!(
                value.bytes().all(|byte| is_allowed(byte) || byte >= 0x80),
                "{value:?} (RFC 6265, 4.1.1)"
            );
            pair.to_owned()
        })
        .collect()
}

/// Returns whether a cookie needs no decoding.
fn is_plain(pair: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_octet = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\%".contains(&byte);
    pair.split_once('=').is_some_and(|(name, value)| {
        !name.is_empty() && name.bytes().all(is_token) && value.bytes().all(is_octet)
    })
}

fuzz_target!(|input: &[u8]| {
    let Fixture { client, received, values, to_send } = &*FIXTURE;

    if is_field_value(input) && input.len() < 6000 {
        assert_eq!(ask(client, Method::GET, b"/all", &[("cookie", input)], b"").status, 200);
        let found = received.take().expect("the handler was called");
        let pairs: Vec<&[u8]> = input.split(|&byte| byte == b';').collect();
        assert!(found.len() <= COOKIES_MAX.min(pairs.len()));
        assert!(found.iter().all(|(name, _)| !name.is_empty() && !name.contains([';', '='])));
        let plain = pairs.iter().filter_map(|pair| {
            std::str::from_utf8(pair).ok().map(|pair| pair.trim_matches([' ', '\t']))
        });
        let mut plain = plain.filter(|pair| is_plain(pair));
        // The cookies are found in the order in which they were sent.
        let mut rest = found.iter();
        if pairs.len() <= COOKIES_MAX {
            assert!(
                plain.all(|pair| rest.any(|(name, value)| pair == format!("{name}={value}"))),
                "{found:?}"
            );
        }
    }

    let Some((&flip, input)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(input.get(..VALUE_BYTES_MAX).unwrap_or(input)).into_owned();
    to_send.put(text.clone());
    let answer = ask(client, Method::GET, b"/set", &[], b"");
    assert_eq!(answer.status, 200);
    let pairs = kept(&answer);
    assert_eq!(pairs.len(), 3);
    let send_back = |pairs: &[String]| {
        let line = pairs.join("; ");
        assert_eq!(
            ask(client, Method::GET, b"/get", &[("cookie", line.as_bytes())], b"").status,
            200
        );
        values.take().expect("the handler was called")
    };
    let expected = Some(text.clone());
    assert_eq!(send_back(&pairs), [expected.clone(), expected.clone(), expected.clone()]);

    // One byte of a signed or encrypted value is changed.
    for (at, pair) in pairs.iter().enumerate().skip(1) {
        let mut bytes = pair.clone().into_bytes();
        let begin = pair.find('=').map_or(0, |at| at + 1);
        let place = begin + (usize::from(flip) * 31 + input.len()) % (bytes.len() - begin);
        let Some(byte) = bytes.get_mut(place) else { continue };
        *byte = if *byte == b'x' { b'y' } else { b'x' };
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        let found = send_back(std::slice::from_ref(&changed));
        let found = found.get(at).expect("there are three values");
        assert!(found.is_none() || *found == expected, "{changed} is taken for {found:?}");
    }
    // A value that was signed for one cookie is not accepted for another.
    let signed = pairs.get(1).expect("there are three").replacen("signed=", "encrypted=", 1);
    assert_eq!(send_back(&[signed]), [None, None, None]);
});
