//! Queries, forms and paths are decoded as `form_urlencoded` and `percent-encoding` decode them, or
//! refused where those guess. What is encoded is decoded to the original.

#![no_main]

use std::sync::LazyLock;

use filoplume::extract::{FieldsError, FormRejection, QueryRejection};
use filoplume::prelude::*;
use filoplume::testing::TestClient;
use filoplume_fuzz::{Seen, ask, is_target};
use libfuzzer_sys::fuzz_target;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use serde::Deserialize;

type Pairs = Vec<(String, String)>;

const FORM: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");

/// The maximum that the framework documents.
const FIELDS_MAX: usize = 10_000;

#[derive(Deserialize)]
#[allow(dead_code, reason = "that it can be read is what is asked")]
struct Typed {
    name: String,
    #[serde(default)]
    tag: Vec<String>,
    count: Option<u8>,
    #[serde(default)]
    gift: bool,
    ratio: Option<f32>,
    letter: Option<char>,
}

struct Fixture {
    client: TestClient,
    pairs: Seen<Result<Pairs, FieldsError>>,
    text: Seen<String>,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let (pairs, text) = (Seen::default(), Seen::default());
    let (of_query, of_form, of_path, of_rest) =
        (Seen::clone(&pairs), pairs.clone(), Seen::clone(&text), text.clone());
    let app = App::new()
        .get("/query", move |query: Result<Query<Pairs>, QueryRejection>| {
            of_query.put(query.map(|Query(pairs)| pairs).map_err(|QueryRejection(error)| error));
        })
        .post("/form", move |form: Result<Form<Pairs>, FormRejection>| match form {
            Ok(Form(pairs)) => of_form.put(Ok(pairs)),
            Err(FormRejection::Fields(error)) => of_form.put(Err(error)),
            Err(rejection) => panic!("{rejection}"),
        })
        .get("/typed", |_: Query<Typed>| ())
        .post("/typed", |_: Form<Typed>| ())
        .get("/path/{text}", move |Path(text): Path<String>| of_path.put(text))
        .get("/rest/{*text}", move |Path(text): Path<String>| of_rest.put(text));
    Fixture { client: app.test().without_cookies(), pairs, text }
});

/// Returns the decoded text, if nothing has to be guessed.
fn decoded(text: &[u8]) -> Option<String> {
    let are_whole = (0..text.len()).filter(|&at| text.get(at) == Some(&b'%')).all(|at| {
        let digits = text.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    let bytes: Vec<u8> = percent_decode(text).collect();
    String::from_utf8(bytes).ok().filter(|_| are_whole)
}

fn expected(input: &[u8]) -> Option<Pairs> {
    let pairs: Vec<&[u8]> =
        input.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).collect();
    let are_plain = pairs
        .iter()
        .all(|pair| pair.splitn(2, |&byte| byte == b'=').all(|part| decoded(part).is_some()));
    (are_plain && pairs.len() <= FIELDS_MAX)
        .then(|| form_urlencoded::parse(input).into_owned().collect())
}

/// Checks that the input as a query is decoded as it was as a form, and that it is percent-decoded
/// as a part of a path.
fn check_target(input: &[u8], form: &Result<Pairs, FieldsError>) {
    let Fixture { client, pairs, text } = &*FIXTURE;
    ask(client, Method::GET, &[b"/query?", input].concat(), &[], b"");
    if let Some(query) = pairs.take() {
        assert_eq!(query, *form);
    }
    let status = ask(client, Method::GET, &[b"/typed?", input].concat(), &[], b"").status;
    assert!([200, 400, 414].contains(&status), "{status}");

    for (place, is_rest) in [(b"/path/".as_slice(), false), (b"/rest/", true)] {
        let is_all = !input.iter().any(|byte| *byte == b'?' || (!is_rest && *byte == b'/'));
        ask(client, Method::GET, &[place, input].concat(), &[], b"");
        if let Some(found) = text.take().filter(|_| is_all) {
            assert_eq!(Some(found), decoded(input));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Fixture { client, pairs, text } = &*FIXTURE;
    let expected = expected(input);

    // The content may be any bytes.
    assert_eq!(ask(client, Method::POST, b"/form", &[FORM], input).status, 200);
    let form = pairs.take().expect("the form was read");
    assert_eq!(form.as_ref().ok(), expected.as_ref(), "{form:?}");
    assert!(
        [200, 400, 413, 422].contains(&ask(client, Method::POST, b"/typed", &[FORM], input).status)
    );

    if is_target(input) {
        check_target(input, &form);
    }

    // What is encoded is decoded to the original.
    let texts: Vec<String> = input
        .split(|&byte| byte == 0)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect();
    let sent: Pairs = texts
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair.get(1).cloned().unwrap_or_default()))
        .collect();
    let encoded = form_urlencoded::Serializer::new(String::new()).extend_pairs(&sent).finish();
    if sent.len() <= FIELDS_MAX {
        assert_eq!(ask(client, Method::POST, b"/form", &[FORM], encoded.as_bytes()).status, 200);
        assert_eq!(pairs.take(), Some(Ok(sent)));
    }
    let first = texts.first().map_or("", String::as_str);
    let encoded = utf8_percent_encode(first, NON_ALPHANUMERIC).to_string();
    if !first.is_empty() && encoded.len() < 4096 {
        assert_eq!(
            ask(client, Method::GET, format!("/path/{encoded}").as_bytes(), &[], b"").status,
            200
        );
        assert_eq!(text.take().as_deref(), Some(first));
    }
});
