//! `application/x-www-form-urlencoded`, the format of queries and forms.

use std::error::Error as StdError;
use std::fmt;

use serde::de::DeserializeOwned;

use super::few_fields::read_few;
use super::percent::{self, EncodingError};
use super::plain_words::in_plain_words;
use super::serde_error::{field_path, is_shortened, shortened};

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
    /// The type cannot be read from fields, whatever their values: it has a number or a `bool` in
    /// `#[serde(flatten)]` or `#[serde(tag)]`, where serde offers only texts. The response is a
    /// `500`.
    Unreadable {
        /// What is wrong.
        message: String,
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
            Self::TooMany { .. } | Self::Unreadable { .. } | Self::Data { field: None, .. } => None,
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
            Self::Unreadable { message } => write!(
                f,
                "{message}: numbers and `bool` in `#[serde(flatten)]` or `#[serde(tag)]` cannot be \
                 read, so take two parameters, such as `Query(page): Query<Page>, Query(filter): \
                 Query<Filter>`"
            ),
            Self::Data { field: Some(field), message } => {
                write!(f, "`{field}` is wrong: {message}")
            }
            Self::Data { field: None, message } => f.write_str(message),
        }
    }
}

impl StdError for FieldsError {}

/// Deserializes a value from fields. A browser sends every field of a form, also those that were
/// left empty. So a field that is empty counts as missing if its type cannot read an empty text.
pub(crate) fn read<T: DeserializeOwned>(input: &[u8]) -> Result<T, FieldsError> {
    if let Some(value) = read_few(input) {
        return Ok(value);
    }
    // The deserializer would replace invalid UTF-8 with U+FFFD, and keep malformed escapes, so both
    // are refused first.
    check(input)?;
    let error = match read_once(input) {
        Err(error) if has_empty_field(input) => error,
        result => return result,
    };
    let attempts = attempts(input);
    let (mut rest, mut current) = (input.to_vec(), error.clone());
    for _ in 0..attempts {
        let FieldsError::Data { field: Some(field), message } = &current else { return Err(error) };
        if message.starts_with("unknown field") {
            return Err(error);
        }
        let Some(without) = without_empty(&rest, field) else { return Err(error) };
        rest = without;
        current = match read_once(&rest) {
            Err(error) => error,
            result => return result,
        };
    }
    Err(error)
}

/// How many empty fields may count as missing, in a form of the usual length.
const EMPTY_FIELDS_MAX: usize = 64;

/// How many bytes are read again to find fields that count as missing, in all attempts together. It
/// bounds the work that a long form can cause.
const RETRIED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many fields are read again, in all attempts together. It is enough for all attempts if a
/// form has one field more than may count as missing. It bounds the work that many short fields can
/// cause: a map has as many empty fields as the client sends.
const RETRIED_FIELDS_MAX: usize = EMPTY_FIELDS_MAX * (EMPTY_FIELDS_MAX + 1);

/// Returns how often the fields may be read again.
fn attempts(input: &[u8]) -> usize {
    let by_bytes = RETRIED_BYTES_MAX / input.len().max(1);
    let by_fields = RETRIED_FIELDS_MAX / pairs(input).count();
    by_bytes.min(by_fields).clamp(1, EMPTY_FIELDS_MAX)
}

fn pairs(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split(|&byte| byte == b'&')
}

fn is_empty(pair: &[u8]) -> bool {
    pair.last() == Some(&b'=') && pair.iter().filter(|&&byte| byte == b'=').count() == 1
}

fn has_empty_field(input: &[u8]) -> bool {
    pairs(input).any(is_empty)
}

/// Returns whether an error with this name means this field. All fields are compared again and
/// again, so this allocates nothing for a name without escapes.
fn is_named(pair: &[u8], field: &str) -> bool {
    let name = percent_encoding::percent_decode(name_part(pair)).decode_utf8_lossy();
    name == field || is_shortened(&name, field)
}

/// Returns the fields without this one. `None` unless it occurs once and is empty.
fn without_empty(input: &[u8], field: &str) -> Option<Vec<u8>> {
    let (mut kept, mut is_found) = (Vec::with_capacity(input.len()), false);
    for pair in pairs(input) {
        if !is_named(pair, field) {
            kept.extend_from_slice(pair);
            kept.push(b'&');
        } else if is_empty(pair) && !is_found {
            is_found = true;
        } else {
            return None;
        }
    }
    is_found.then_some(kept)
}

fn read_once<T: DeserializeOwned>(input: &[u8]) -> Result<T, FieldsError> {
    let deserializer = serde_html_form::Deserializer::from_bytes(input);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let message = match error.inner().to_string() {
            // The deserializer returns this text if a field occurs several times but its type has
            // one value.
            unclear if unclear == "unsupported value" => "it occurs more than once".to_owned(),
            // If the path names a field, the message may come from the program's own code.
            message if wants_a_number(&message) && error.path().to_string() == "." => {
                return FieldsError::Unreadable { message: shortened(message) };
            }
            message => message,
        };
        let field = field_path(error.path(), &message);
        FieldsError::Data { field, message: shortened(in_plain_words(&message, true)) }
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

/// Returns the beginning of the name of a field.
fn name(pair: &[u8]) -> String {
    percent_encoding::percent_decode(name_part(pair))
        .decode_utf8_lossy()
        .chars()
        .take(NAME_CHARS_MAX)
        .collect()
}

fn name_part(pair: &[u8]) -> &[u8] {
    pair.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// Returns whether serde has refused a text because it wants a number or a `bool`. A value that is
/// read as one of these gives another message, so this comes from `#[serde(flatten)]` or
/// `#[serde(tag)]` only.
fn wants_a_number(message: &str) -> bool {
    const WANTED: [&str; 15] = [
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "isize",
        "u8",
        "u16",
        "u32",
        "u64",
        "u128",
        "usize",
        "f32",
        "f64",
        "a boolean",
    ];
    message.starts_with("invalid type: string ")
        && WANTED.iter().any(|kind| message.ends_with(&format!(", expected {kind}")))
}

#[cfg(test)]
mod tests;
