//! Fields as types, and what is wrong with them.

#![allow(clippy::needless_pass_by_value, reason = "rows read better with values")]

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Size {
    Small,
    Large,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Order {
    name: String,
    #[serde(default)]
    tag: Vec<String>,
    count: Option<u8>,
    #[serde(default)]
    gift: bool,
    size: Option<Size>,
}

#[track_caller]
fn check_read(input: &str, expected: Expect) {
    let read = match read::<Order>(input.as_bytes()) {
        Ok(Order { name, tag, count, gift, size }) => {
            format!("{name} {tag:?} {count:?} {gift} {size:?}")
        }
        Err(error) => format!("{error}"),
    };
    expected.assert_eq(&read);
}

#[test]
fn repeated_fields_are_lists_and_missing_ones_defaults() {
    check_read("name=a", expect![[r#"a [] None false None"#]]);
    check_read("name=a+b%21&tag=x&tag=y", expect![[r#"a b! ["x", "y"] None false None"#]]);
    check_read("name=a&tag=x", expect![[r#"a ["x"] None false None"#]]);
    check_read(
        "&&name=a&count=3&gift=on&size=large&",
        expect![[r#"a [] Some(3) true Some(Large)"#]],
    );
    check_read("name=a&count=", expect![[r#"a [] None false None"#]]);
    check_read("name=a&count=1=", expect!["`count` is wrong: expected a whole number, in digits"]);
    check_read(&format!("name=a{}", "&".repeat(FIELDS_MAX)), expect!["a [] None false None"]);
}

/// Only for the whole form does it say that the type cannot be read from one.
#[test]
fn a_type_of_the_program_may_word_its_error_like_serde() {
    #[derive(Debug)]
    struct Odd;
    impl<'de> Deserialize<'de> for Odd {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            let wanted = serde::de::Unexpected::Str("1");
            Err(serde::de::Error::invalid_type(wanted, &"u8"))
        }
    }
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is never read")]
    struct Form {
        count: Odd,
    }
    let error = read::<Form>(b"count=1").expect_err("no text is odd");
    assert!(
        matches!(&error, FieldsError::Data { field, .. } if field.as_deref() == Some("count")),
        "{error:?}"
    );
}

#[test]
fn an_empty_field_is_missing_unless_its_type_reads_an_empty_text() {
    check_read("name=&size=", expect![[r#" [] None false None"#]]);
    check_read("name=a&size=&gift=&count=", expect![[r#"a [] None false None"#]]);
    check_read(
        "name=a&size&gift=on",
        expect!["`size` is wrong: unknown value ``, expected `small` or `large`"],
    );
    check_read("name=a&size=&size=small", expect!["`size` is wrong: it occurs more than once"]);
    check_read("name=a&size=&size=", expect!["`size` is wrong: it occurs more than once"]);
    check_read(
        "name=a&colour=&size=",
        expect![
            "`colour` is wrong: unknown field `colour`, expected one of `name`, `tag`, \
             `count`, `gift`, `size`"
        ],
    );
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "its fields are printed")]
    struct Filter {
        size: Size,
        from: Option<std::net::IpAddr>,
        letter: Option<char>,
    }
    let read = |input: &str| match read::<Filter>(input.as_bytes()) {
        Ok(filter) => format!("{filter:?}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        read("from=&size=large&letter="),
        "Filter { size: Large, from: None, letter: None }"
    );
    let required = read("from=&size=&letter=");
    assert!(required.contains("wrong"), "{required}");
}

#[test]
fn an_empty_field_with_a_long_name_counts_as_missing() {
    type Fields = std::collections::HashMap<String, u32>;
    for chars in [NAME_CHARS_MAX, NAME_CHARS_MAX + 1, 420, 100_000] {
        let long = format!("{}{}", "n".repeat(chars), "ö");
        let read = read::<Fields>(format!("{long}x=1&{long}=").as_bytes()).unwrap();
        assert_eq!(read, Fields::from([(format!("{long}x"), 1)]), "{chars}");
    }
}

thread_local! {
    static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A number that counts how often such numbers are read.
#[derive(Debug)]
struct Counted;

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        READS.set(READS.get() + 1);
        u32::deserialize(deserializer).map(|_| Self)
    }
}

/// Returns how often a form of empty fields is read, and whether it could be read.
fn reads_of_empty(fields: usize) -> (usize, bool) {
    let input: Vec<String> = (0..fields).map(|number| format!("a{number}=")).collect();
    READS.set(0);
    let input = input.join("&");
    let read = read::<std::collections::HashMap<String, Counted>>(input.as_bytes());
    (READS.get(), read.is_ok())
}

#[test]
fn the_more_empty_fields_there_are_the_fewer_attempts_they_cost() {
    assert_eq!(reads_of_empty(EMPTY_FIELDS_MAX), (EMPTY_FIELDS_MAX, true));
    assert_eq!(reads_of_empty(EMPTY_FIELDS_MAX + 1), (EMPTY_FIELDS_MAX + 1, false));
    // The first read, and two attempts.
    assert_eq!(reads_of_empty(RETRIED_FIELDS_MAX / 2), (3, false));
    assert_eq!(reads_of_empty(RETRIED_FIELDS_MAX), (2, false));
    assert_eq!(reads_of_empty(FIELDS_MAX), (2, false));
    let long = "n".repeat(RETRIED_BYTES_MAX / 3);
    let read =
        read::<std::collections::HashMap<String, u32>>(format!("{long}a=&{long}b=").as_bytes());
    assert!(read.is_err(), "one attempt, because the names are long");
    // A query of 3.5 KB: the first read, and four attempts.
    assert_eq!(reads_of_empty(900), (5, false));
}

#[test]
fn a_number_in_a_flattened_struct_is_a_mistake_of_the_program() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Page {
        page: u32,
    }
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its `Deserialize` is used")]
    struct Search {
        q: Option<String>,
        #[serde(flatten)]
        page: Page,
    }
    let error = read::<Search>(b"q=a&page=2").unwrap_err();
    assert!(matches!(error, FieldsError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("so take two parameters"), "{error}");
    let error = read::<Page>(b"page=two").unwrap_err();
    assert!(matches!(error, FieldsError::Data { .. }), "{error:?}");
}

#[test]
fn errors_name_the_field() {
    check_read("", expect!["`name` is wrong: it is missing"]);
    check_read("name=a&count=300", expect!["`count` is wrong: the number is too large"]);
    check_read(
        "name=a&size=huge",
        expect!["`size` is wrong: unknown value `huge`, expected `small` or `large`"],
    );
    check_read("name=a&count=1&count=2", expect!["`count` is wrong: it occurs more than once"]);
    check_read(
        "name=a&size=%zz",
        expect!["`size` has a `%` without two hexadecimal digits after it"],
    );
    check_read("na%FFme=a", expect!["`na\u{fffd}me` is not UTF-8"]);
    // An error does not repeat a long name.
    let named = check(format!("{}=%FF", "n".repeat(NAME_CHARS_MAX + 1)).as_bytes());
    let expected = format!("`{}` is not UTF-8", "n".repeat(NAME_CHARS_MAX));
    assert_eq!(named.map_err(|error| error.to_string()), Err(expected));
    check_read(
        "name=a&colour=red",
        expect![
            "`colour` is wrong: unknown field `colour`, expected one of `name`, `tag`, \
             `count`, `gift`, `size`"
        ],
    );
}

#[test]
fn too_many_fields_are_an_error() {
    let many = "a=&".repeat(FIELDS_MAX + 1);
    assert_eq!(
        read::<Order>(many.as_bytes()),
        Err(FieldsError::TooMany { fields_max: FIELDS_MAX })
    );
}

proptest! {
    #[test]
    fn nothing_panics(input in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = read::<Order>(&input);
        let _ = read::<Vec<(String, String)>>(&input);
    }

    #[test]
    fn encoded_fields_round_trip(
        name in "\\PC{0,12}",
        tags in proptest::collection::vec("\\PC{0,6}", 0..4),
    ) {
        let encode = |text: &str| {
            use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
            utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
        };
        let mut input = format!("name={}", encode(&name));
        for tag in &tags {
            input.push_str(&format!("&tag={}", encode(tag)));
        }
        let order = read::<Order>(input.as_bytes()).unwrap();
        prop_assert_eq!((order.name, order.tag), (name, tags));
    }
}
