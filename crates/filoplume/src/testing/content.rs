//! The content of a request of the test client.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::multipart::MultipartForm;

/// Characters that are not encoded in a form, in addition to letters and digits
/// (`application/x-www-form-urlencoded`).
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

#[derive(Clone)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// A form that is already encoded.
    Form(String),
    Multipart(MultipartForm),
}

impl Content {
    pub(super) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) => bytes.into(),
            Self::Form(form) => form.as_bytes().into(),
            Self::Multipart(form) => form.content().into(),
        }
    }
}

/// Encodes pairs as a form or query.
pub(super) fn encoded<N: AsRef<str>, V: AsRef<str>>(pairs: &[(N, V)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, FORM).to_string().replace("%20", "+");
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name.as_ref()), encode(value.as_ref())));
    pairs.collect::<Vec<_>>().join("&")
}
