//! `application/x-www-form-urlencoded`, the format of queries and forms.

use std::error::Error as StdError;
use std::fmt;

use serde::de::DeserializeOwned;

use super::percent::{self, EncodingError};
use super::serde_error::{field_path, shortened};

/// The maximum number of fields. A field can have two bytes of input and takes some hundred bytes
/// while it is read: without a limit a form of 2 MiB could take 100 MiB. Real forms have far fewer
/// fields.
const FIELDS_MAX: usize = 10_000;

/// The maximum length of a field's name in an error.
const NAME_CHARS_MAX: usize = 64;

/// An error in the fields of a [`Query`](super::Query) or a [`Form`](super::Form).
///
/// ```
/// use filoplume::extract::{FieldsError, QueryRejection};
/// use filoplume::prelude::*;
///
/// #[derive(serde::Deserialize)]
/// struct Search {
///     page: u32,
/// }
///
/// fn search(query: Result<Query<Search>, QueryRejection>) -> String {
///     match query {
///         Ok(Query(search)) => format!("page {}", search.page),
///         Err(QueryRejection(FieldsError::Data { field: Some(field), .. })) => {
///             format!("`{field}` is wrong")
///         }
///         Err(rejection) => rejection.to_string(),
///     }
/// }
///
/// App::new()
///     .get("/", search)
///     .test()
///     .get("/?page=two")
///     .send()
///     .assert_text("`page` is wrong");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldsError {
    /// A name or a value is not encoded correctly.
    Encoding {
        /// The name of the field.
        field: String,
        /// What is wrong with it.
        error: EncodingError,
    },
    /// There are too many fields.
    TooMany {
        /// The maximum number of fields.
        fields_max: usize,
    },
    /// The fields do not match the type.
    Data {
        /// The name of the field; `None` if the error concerns all of them.
        field: Option<String>,
        /// What is wrong.
        message: String,
    },
}

impl FieldsError {
    /// Returns the name of the invalid field, and what is wrong with it.
    pub(crate) fn field(&self) -> Option<(&str, String)> {
        match self {
            Self::Encoding { field, error } => Some((field, error.to_string())),
            Self::Data { field: Some(field), message } => Some((field, message.clone())),
            Self::TooMany { .. } | Self::Data { field: None, .. } => None,
        }
    }
}

impl fmt::Display for FieldsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding { field, error } => write!(f, "`{field}` {error}"),
            Self::TooMany { fields_max } => {
                write!(f, "there are more than the {fields_max} fields that are accepted")
            }
            Self::Data { field: Some(field), message } => {
                write!(f, "`{field}` is wrong: {message}")
            }
            Self::Data { field: None, message } => f.write_str(message),
        }
    }
}

impl StdError for FieldsError {}

/// Deserializes a value from fields.
pub(crate) fn read<T: DeserializeOwned>(input: &[u8]) -> Result<T, FieldsError> {
    // The deserializer would replace invalid UTF-8 with U+FFFD, and keep malformed escapes.
    check(input)?;
    let deserializer = serde_html_form::Deserializer::from_bytes(input);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let message = match error.inner().to_string() {
            // The deserializer returns this text if a field occurs several times but has one value.
            unclear if unclear == "unsupported value" => "it occurs more than once".to_owned(),
            message => message,
        };
        FieldsError::Data { field: field_path(error.path(), &message), message: shortened(message) }
    })
}

fn check(input: &[u8]) -> Result<(), FieldsError> {
    let mut fields = 0;
    for pair in input.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
        fields += 1;
        if fields > FIELDS_MAX {
            return Err(FieldsError::TooMany { fields_max: FIELDS_MAX });
        }
        for part in pair.splitn(2, |&byte| byte == b'=') {
            if let Err(error) = percent::decode(part) {
                return Err(FieldsError::Encoding { field: name(pair), error });
            }
        }
    }
    Ok(())
}

/// Returns the name of the field in an invalid pair.
fn name(pair: &[u8]) -> String {
    let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
    percent_encoding::percent_decode(name)
        .decode_utf8_lossy()
        .chars()
        .take(NAME_CHARS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn errors_name_the_field() {
        check_read("", expect!["`name` is wrong: missing field `name`"]);
        check_read(
            "name=a&count=300",
            expect!["`count` is wrong: number too large to fit in target type"],
        );
        check_read(
            "name=a&size=huge",
            expect!["`size` is wrong: unknown variant `huge`, expected `small` or `large`"],
        );
        check_read("name=a&count=1&count=2", expect!["`count` is wrong: it occurs more than once"]);
        check_read(
            "name=a&size=%zz",
            expect!["`size` has a `%` without two hexadecimal digits after it"],
        );
        check_read("na%FFme=a", expect!["`na\u{fffd}me` is not UTF-8"]);
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
}
