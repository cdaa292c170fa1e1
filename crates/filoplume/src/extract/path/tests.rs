//! How serde reads captures.

use std::collections::HashMap;

use serde::Deserialize;

use super::*;
use crate::routing::Pattern;

fn read<T: DeserializeOwned>(captures: &[(&str, &str)]) -> Result<T, String> {
    let pattern: String = captures.iter().map(|(name, _)| format!("/{{{name}}}")).collect();
    let path: String = captures.iter().map(|(_, text)| format!("/{text}")).collect();
    let pattern = Pattern::parse(&pattern).unwrap();
    let captures = Captures::new(&pattern.captures, &path);
    T::deserialize(CapturesDeserializer(&captures)).map_err(|refused| match refused {
        PathError::Plain(message) | PathError::Mismatch(message) => message,
        PathError::At(name, message) => format!("{name}: {message}"),
        PathError::Encoding(name, error) => format!("{name} {error}"),
    })
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Id(u64);

#[derive(Debug, Deserialize, PartialEq)]
struct Both {
    color: Color,
    id: Option<Id>,
}

#[test]
fn one_capture_is_a_value() {
    assert_eq!(read(&[("id", "17")]), Ok(17_u64));
    assert_eq!(read(&[("id", "17")]), Ok(Id(17)));
    assert_eq!(read(&[("id", "17")]), Ok((17_i8,)));
    assert_eq!(read(&[("id", "-1.5")]), Ok(-1.5_f32));
    assert_eq!(read(&[("name", "a b")]), Ok("a b".to_owned()));
    assert_eq!(read(&[("letter", "%C3%B6")]), Ok('ö'));
    assert_eq!(read(&[("name", "a%2Fb+c")]), Ok("a/b+c".to_owned()));
    assert_eq!(read(&[("color", "red")]), Ok(Color::Red));
}

#[test]
fn several_captures_are_a_tuple_a_struct_a_list_or_a_map() {
    let captures = [("color", "green"), ("id", "3")];
    assert_eq!(read(&captures), Ok((Color::Green, 3_u8)));
    assert_eq!(read(&captures), Ok(Both { color: Color::Green, id: Some(Id(3)) }));
    assert_eq!(read(&captures), Ok(vec!["green".to_owned(), "3".to_owned()]));
    let map = HashMap::from([
        ("color".to_owned(), "green".to_owned()),
        ("id".to_owned(), "3".to_owned()),
    ]);
    assert_eq!(read(&captures), Ok(map));
}

#[test]
fn errors_name_the_capture() {
    assert_eq!(
        read::<u8>(&[("id", "256")]),
        Err("id: `256` is not a whole number from 0 to 255".to_owned())
    );
    assert_eq!(read::<String>(&[("id", "%ff")]), Err("id is not UTF-8".to_owned()));
    assert!(
        read::<(u8, String)>(&[("a", "1"), ("b", "%4")])
            .is_err_and(|message| message.starts_with("b has"))
    );
    let captures = [("color", "blue"), ("id", "3")];
    assert_eq!(
        read::<Both>(&captures),
        Err("color: unknown variant `blue`, expected `red` or `green`".to_owned())
    );
    assert_eq!(
        read::<(u8, u8, u8)>(&captures),
        Err("it has 3 values, but the pattern has 2 captures".to_owned())
    );
    assert!(read::<u8>(&captures).is_err_and(|message| message.contains("use a tuple")));
}

#[test]
fn a_value_that_takes_anything_is_a_text_or_a_map() {
    use serde_json::{Value, json};
    assert_eq!(read::<Value>(&[("id", "17")]), Ok(json!("17")));
    assert_eq!(read::<Value>(&[("a", "1"), ("b", "2")]), Ok(json!({ "a": "1", "b": "2" })));
}

#[test]
fn a_tuple_has_as_many_values_as_the_pattern_has_captures() {
    let captures = [("a", "1"), ("b", "2"), ("c", "3")];
    assert_eq!(read(&captures), Ok((1_u8, 2_u8, 3_u8)));
    assert!(read::<(u8, u8)>(&captures).is_err_and(|message| message.contains("3 captures")));
    assert!(
        read::<(u8, u8, u8, u8)>(&captures).is_err_and(|message| message.contains("3 captures"))
    );
}

/// A client cannot know which of several captures a message is about.
#[test]
fn a_message_without_a_name_is_about_the_only_capture() {
    let rejection = |pattern: &str, path: &str| {
        let pattern = Pattern::parse(pattern).unwrap();
        let captures = Captures::new(&pattern.captures, path);
        PathError::Plain("it is odd".to_owned()).into_rejection(&captures)
    };
    assert!(
        matches!(rejection("/{a}", "/1"), PathRejection::Invalid { capture, .. } if capture == "a")
    );
    assert!(matches!(rejection("/{a}/{b}", "/1/2"), PathRejection::Mismatch { .. }));
}

#[test]
fn a_position_within_a_value_is_left_out() {
    let pattern = Pattern::parse("/{id}").unwrap();
    let captures = Captures::new(&pattern.captures, "/x");
    let of_json = "it is odd at line 1 column 2".to_owned();
    let rejection = PathError::At("id".to_owned(), of_json).into_rejection(&captures);
    assert!(
        matches!(&rejection, PathRejection::Invalid { message, .. } if message == "it is odd"),
        "{rejection:?}"
    );
}
