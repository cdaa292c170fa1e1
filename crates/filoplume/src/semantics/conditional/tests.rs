//! One row of data per rule, and properties of what is parsed.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::prelude::*;

use super::*;

const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn headers(lines: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.append(name, value).unwrap();
    }
    headers
}

/// A content with a strong tag, and the date `THEN`.
fn current() -> Validators {
    // The change happened within that second.
    let time = date(THEN.as_bytes()).unwrap() + Duration::from_millis(900);
    Validators::new().etag(EntityTag::strong("a")).last_modified(time)
}

/// A method, headers, and the expected verdict.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Verdict);

#[track_caller]
fn check(method: &str, lines: &[(&str, &str)], expected: Verdict) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    assert_eq!(
        Conditions::of(&headers(lines)).evaluate(&method, Some(&current())),
        expected,
        "{method} {lines:?}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn conditions_are_evaluated_in_the_order_of_the_rfc() {
    use Verdict::{Failed, Malformed, NotModified, Proceed};
    let rows: &[Row<'_>] = &[
        ("GET", &[], Proceed),
        // 1: If-Match
        ("GET", &[("if-match", "\"a\"")], Proceed),
        ("GET", &[("if-match", "*")], Proceed),
        ("GET", &[("if-match", "\"b\", \"a\"")], Proceed),
        ("GET", &[("if-match", "\"b\"")], Failed),
        ("GET", &[("if-match", "W/\"a\"")], Failed),
        ("PUT", &[("if-match", "\"a\"")], Proceed),
        ("PUT", &[("if-match", "\"b\"")], Failed),
        ("PUT", &[("if-match", "")], Failed),
        ("PUT", &[("if-match", "a")], Malformed),
        ("GET", &[("if-match", "*, \"a\"")], Malformed),
        ("GET", &[("if-match", "*"), ("if-match", "\"a\"")], Malformed),
        ("GET", &[("if-match", "\"a\""), ("if-match", "*")], Malformed),
        ("GET", &[("if-match", "\"b\""), ("if-match", "\"a\"")], Proceed),
        // 1 before 2
        ("GET", &[("if-match", "\"a\""), ("if-unmodified-since", EARLIER)], Proceed),
        ("GET", &[("if-match", "\"b\""), ("if-unmodified-since", LATER)], Failed),
        // 2: If-Unmodified-Since
        ("PUT", &[("if-unmodified-since", EARLIER)], Failed),
        ("PUT", &[("if-unmodified-since", THEN)], Proceed),
        ("PUT", &[("if-unmodified-since", LATER)], Proceed),
        ("PUT", &[("if-unmodified-since", "yesterday")], Proceed),
        // 3: If-None-Match
        ("GET", &[("if-none-match", "\"a\"")], NotModified),
        ("HEAD", &[("if-none-match", "W/\"a\"")], NotModified),
        ("GET", &[("if-none-match", "*")], NotModified),
        ("GET", &[("if-none-match", ", \"x\" ,\t, \"a\",")], NotModified),
        ("GET", &[("if-none-match", "\"x\""), ("if-none-match", "\"a\"")], NotModified),
        ("GET", &[("if-none-match", "\"b\"")], Proceed),
        ("PUT", &[("if-none-match", "*")], Failed),
        ("POST", &[("if-none-match", "\"a\"")], Failed),
        ("DELETE", &[("if-none-match", "W/\"a\"")], Failed),
        ("PUT", &[("if-none-match", "\"b\"")], Proceed),
        ("GET", &[("if-none-match", "a")], Proceed),
        ("GET", &[("if-none-match", "\"a")], Proceed),
        ("GET", &[("if-none-match", "\"a\" \"b\"")], Proceed),
        ("GET", &[("if-none-match", "w/\"a\"")], Proceed),
        ("GET", &[("if-none-match", "\"a b\", \"a\"")], Proceed),
        ("PUT", &[("if-none-match", "a")], Malformed),
        // 1 and 2 before 3
        ("GET", &[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed),
        ("GET", &[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified),
        ("GET", &[("if-unmodified-since", EARLIER), ("if-none-match", "\"a\"")], Failed),
        // 3 before 4: the date does not count, whatever the tags say
        ("GET", &[("if-none-match", "\"b\""), ("if-modified-since", LATER)], Proceed),
        ("GET", &[("if-none-match", "\"a\""), ("if-modified-since", EARLIER)], NotModified),
        ("GET", &[("if-none-match", "a"), ("if-modified-since", LATER)], Proceed),
        // 4: If-Modified-Since
        ("GET", &[("if-modified-since", EARLIER)], Proceed),
        ("GET", &[("if-modified-since", THEN)], NotModified),
        ("HEAD", &[("if-modified-since", LATER)], NotModified),
        ("GET", &[("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")], NotModified),
        ("GET", &[("if-modified-since", "Sun Nov  6 08:49:37 1994")], NotModified),
        ("GET", &[("if-modified-since", "Sun Nov  6 08:49:36 1994")], Proceed),
        ("GET", &[("if-modified-since", "Mon, 06 Nov 1994 08:49:37 GMT")], Proceed),
        ("GET", &[("if-modified-since", "Sun, 06 Nov 1994 25:49:37 GMT")], Proceed),
        ("GET", &[("if-modified-since", "784111777")], Proceed),
        ("GET", &[("if-modified-since", LATER), ("if-modified-since", LATER)], Proceed),
        ("POST", &[("if-modified-since", LATER)], Proceed),
        // Methods that neither select nor change content
        ("OPTIONS", &[("if-match", "\"b\"")], Proceed),
        ("TRACE", &[("if-none-match", "*")], Proceed),
    ];
    for (method, lines, expected) in rows {
        check(method, lines, *expected);
    }
}

#[test]
fn missing_content_matches_nothing() {
    let evaluate =
        |lines: &[(&str, &str)]| Conditions::of(&headers(lines)).evaluate(&Method::PUT, None);
    assert_eq!(evaluate(&[("if-match", "*")]), Verdict::Failed);
    assert_eq!(evaluate(&[("if-match", "\"a\"")]), Verdict::Failed);
    assert_eq!(evaluate(&[("if-none-match", "*")]), Verdict::Proceed);
    assert_eq!(evaluate(&[("if-unmodified-since", EARLIER)]), Verdict::Proceed);
}

#[test]
fn without_validators_dates_and_lists_do_not_match() {
    let none = Validators::new();
    let evaluate = |lines: &[(&str, &str)]| {
        Conditions::of(&headers(lines)).evaluate(&Method::GET, Some(&none))
    };
    assert_eq!(evaluate(&[("if-modified-since", LATER)]), Verdict::Proceed);
    assert_eq!(evaluate(&[("if-unmodified-since", EARLIER)]), Verdict::Proceed);
    assert_eq!(evaluate(&[("if-none-match", "\"a\"")]), Verdict::Proceed);
    assert_eq!(evaluate(&[("if-match", "\"a\"")]), Verdict::Failed);
    assert_eq!(evaluate(&[("if-match", "*")]), Verdict::Proceed, "there is something");
}

#[test]
fn a_range_applies_only_to_the_current_version() {
    let weak = Validators::new().etag(EntityTag::weak("a"));
    let dated = current().date_is_strong(true);
    let rows: &[(&Validators, &str, bool)] = &[
        (&current(), "\"a\"", true),
        (&current(), " \"a\" ", true),
        (&current(), "\"b\"", false),
        (&current(), "W/\"a\"", false),
        (&current(), "\"a\", \"b\"", false),
        (&current(), "*", false),
        (&current(), "a", false),
        (&current(), "", false),
        (&current(), THEN, false),
        (&weak, "W/\"a\"", false),
        (&weak, "\"a\"", false),
        (&dated, THEN, true),
        (&dated, "Sun Nov  6 08:49:37 1994", true),
        (&dated, LATER, false),
        (&dated, EARLIER, false),
        (&Validators::new(), "\"a\"", false),
    ];
    for (validators, value, expected) in rows {
        let headers = headers(&[("if-range", value)]);
        assert_eq!(
            Conditions::of(&headers).range_applies(validators),
            *expected,
            "{value} of {validators:?}"
        );
    }
    assert!(Conditions::default().range_applies(&weak), "without the field a range always counts");
    let twice = headers(&[("if-range", "\"a\""), ("if-range", "\"a\"")]);
    assert!(!Conditions::of(&twice).range_applies(&current()));
}

#[test]
fn times_outside_of_http_dates_are_ignored() {
    for time in [UNIX_EPOCH - Duration::from_secs(1), UNIX_EPOCH + DATE_END] {
        assert_eq!(Validators::new().last_modified(time).last_modified_value(), None);
    }
    let last = UNIX_EPOCH + DATE_END - Duration::from_nanos(1);
    let value = Validators::new().last_modified(last).last_modified_value();
    assert_eq!(value.as_deref(), Some("Fri, 31 Dec 9999 23:59:59 GMT"));
}

#[test]
fn a_304_keeps_caching_fields_and_omits_content_fields() {
    let mut response = Response::from("text");
    let kept = [
        ("cache-control", "no-cache"),
        ("content-location", "/a"),
        ("etag", "\"a\""),
        ("expires", THEN),
        ("vary", "accept"),
        ("set-cookie", "a=b"),
    ];
    let dropped =
        [("last-modified", THEN), ("accept-ranges", "bytes"), ("content-encoding", "gzip")];
    for (name, value) in kept.iter().chain(&dropped) {
        response.set_header(name, value).unwrap();
    }
    not_modified(&mut response);
    let names: Vec<&str> = response.headers().iter().map(|(name, _)| name).collect();
    assert_eq!(names, kept.map(|(name, _)| name));
    assert_eq!(response.status(), 304);
}

proptest! {
    #[test]
    fn no_value_panics(value in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut all = Headers::new();
        let names =
            ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"];
        for name in names {
            if all.append(name, &value).is_err() {
                return Ok(());
            }
        }
        let conditions = Conditions::of(&all);
        let _ = conditions.evaluate(&Method::GET, Some(&current()));
        let _ = conditions.range_applies(&current());
    }

    #[test]
    fn lists_of_tags_round_trip(
        tags in proptest::collection::vec((any::<bool>(), "[!#-~]{0,8}"), 0..8),
        gap in "[ \t]{0,2}",
    ) {
        let make = |weak: bool, text: &str| {
            if weak { EntityTag::weak(text) } else { EntityTag::strong(text) }
        };
        let made: Vec<EntityTag> = tags.iter().map(|(weak, text)| make(*weak, text)).collect();
        let text = |tag: &EntityTag| String::from_utf8(tag.as_bytes().to_vec()).unwrap();
        let texts: Vec<String> = made.iter().map(text).collect();
        let headers = headers(&[("if-match", &texts.join(&format!("{gap},{gap}")))]);
        let expected = Tags::List(made.iter().map(EntityTag::tag).collect());
        prop_assert_eq!(Tags::of(&headers, "if-match"), Some(expected));
    }

    #[test]
    fn a_strong_match_is_not_modified(
        text in "[!#-~]{0,8}",
        other in "[!#-~]{0,2}",
        weak in any::<bool>(),
    ) {
        let mine = EntityTag::strong(&text);
        let theirs = if weak { EntityTag::weak(&other) } else { EntityTag::strong(&other) };
        prop_assert!(!mine.matches_strongly(&theirs) || mine.matches_weakly(&theirs));
        prop_assert_eq!(mine.matches_weakly(&theirs), text == other);
        let value = String::from_utf8(theirs.as_bytes().to_vec()).unwrap();
        let current = Validators::new().etag(mine.clone());
        let headers = headers(&[("if-none-match", &value)]);
        let verdict = Conditions::of(&headers).evaluate(&Method::GET, Some(&current));
        prop_assert_eq!(verdict == Verdict::NotModified, mine.matches_weakly(&theirs));
    }
}

#[test]
fn a_response_with_two_entity_tags_has_none() {
    let mut response = Response::from("a note");
    for (tag, expected) in [("\"a\"", Some(&b"\"a\""[..])), ("\"b\"", None)] {
        response.add_header("etag", tag).unwrap();
        assert_eq!(Validators::of(&response).etag_value(), expected);
    }
}

#[test]
fn the_conditions_of_a_request_have_all_lines_of_each_header() {
    let lines = [("if-none-match", r#""x""#), ("range", "bytes=0-1"), ("if-none-match", r#""a""#)];
    let mut request = http::Request::get("/").header("accept", "text/plain");
    for (name, value) in lines {
        request = request.header(name, value);
    }
    let request = filoplume_runtime::Request::try_from(request.body(Vec::new()).unwrap()).unwrap();
    let conditions = RequestConditions::of(&request);
    let tags: Vec<_> = conditions.headers().get_all("if-none-match").collect();
    assert_eq!((conditions.headers().len(), tags), (3, vec![&b"\"x\""[..], b"\"a\""]));
}
