//! The format in which a client prefers errors.

use filoplume_runtime::Headers;

use crate::semantics::accept::preferred;

/// A format of error responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// Also for clients that accept any type: scripts, tools, `fetch`.
    Json,
    Html,
    Text,
}

/// The formats with their media types. If the client has no preference, the first one is used.
const FORMATS: [(ErrorFormat, &[&str]); 3] = [
    (ErrorFormat::Json, &["application/problem+json", "application/json"]),
    (ErrorFormat::Html, &["text/html"]),
    (ErrorFormat::Text, &["text/plain"]),
];

/// The maximum length of an `Accept` that is copied. Those of browsers have up to 140 bytes.
const COPIED_BYTES_MAX: usize = 160;

/// The `Accept` of a request, or the format that it prefers.
///
/// It is recorded for every request but needed only for errors. So the value is copied to the
/// stack, without an allocation, and parsed when there is an error.
#[derive(Clone)]
pub(crate) struct FormatPreference {
    /// The preferred format, if the value was parsed at once because it could not be copied.
    decided: Option<ErrorFormat>,
    /// The length of the value in `bytes`. If it is 0, the client accepts any format.
    length: usize,
    bytes: [u8; COPIED_BYTES_MAX],
}

impl FormatPreference {
    #[inline(always)]
    pub(crate) fn of(headers: &Headers) -> Self {
        let mut accept = Self { decided: None, length: 0, bytes: [0; COPIED_BYTES_MAX] };
        let mut values = headers.get_all("accept");
        if let Some(value) = values.next() {
            if values.next().is_some() {
                accept.decided = Some(Self::preferred_of_all(headers));
                return accept;
            }
            match accept.bytes.get_mut(..value.len()) {
                Some(copy) => {
                    copy.copy_from_slice(value);
                    accept.length = value.len();
                }
                None => accept.decided = Some(Self::preferred(value)),
            }
        }
        accept
    }

    /// Returns the preferred format. It is JSON if no format is acceptable: an error in another
    /// format is more useful than none.
    fn preferred(accept: &[u8]) -> ErrorFormat {
        preferred(accept, &FORMATS).unwrap_or(ErrorFormat::Json)
    }

    /// Joins several fields into one list (RFC 9110, 5.3).
    #[cold]
    fn preferred_of_all(headers: &Headers) -> ErrorFormat {
        Self::preferred(&headers.get_all("accept").collect::<Vec<_>>().join(&b','))
    }

    /// Returns the preference for a format.
    pub(crate) fn preferring(format: ErrorFormat) -> Self {
        Self { decided: Some(format), length: 0, bytes: [0; COPIED_BYTES_MAX] }
    }

    pub(crate) fn format(&self) -> ErrorFormat {
        self.decided
            .unwrap_or_else(|| Self::preferred(self.bytes.get(..self.length).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_accept_and_a_short_one_give_the_same_format() {
        let mut headers = Headers::new();
        headers.append("accept", "text/html").unwrap();
        assert_eq!(FormatPreference::of(&headers).format(), ErrorFormat::Html);
        let long = format!("{}text/html", "image/png;q=0.1, ".repeat(100));
        headers.insert("accept", long).unwrap();
        assert_eq!(FormatPreference::of(&headers).format(), ErrorFormat::Html);
    }

    #[test]
    fn several_fields_are_one_list() {
        let mut headers = Headers::new();
        headers.append("accept", "application/json;q=0.5").unwrap();
        headers.append("accept", "text/html").unwrap();
        assert_eq!(FormatPreference::of(&headers).format(), ErrorFormat::Html);
    }
}
