//! In which form a client would rather read an error.

use filoplume_runtime::Headers;

use crate::semantics::accept::preferred;

/// A form in which an error can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// What is sent to those who take anything: scripts, tools, `fetch`.
    Json,
    Html,
    Text,
}

/// The formats with their media types, those first that are taken when the client does not mind.
const FORMATS: [(Format, &[&str]); 3] = [
    (Format::Json, &["application/problem+json", "application/json"]),
    (Format::Html, &["text/html"]),
    (Format::Text, &["text/plain"]),
];

/// The longest `Accept` that is kept as it is. Those of browsers have up to 140 bytes.
const KEPT_BYTES_MAX: usize = 160;

/// What stood in `Accept`. It is asked of every request and read of few: so it is copied to where
/// nothing is allocated, and taken apart when an error is there.
#[derive(Clone)]
pub(crate) struct Accept {
    /// Set if the text was too long to be kept.
    decided: Option<Format>,
    /// How much of `bytes` is text. Nothing: anything is fine.
    length: usize,
    bytes: [u8; KEPT_BYTES_MAX],
}

impl Accept {
    #[inline(always)]
    pub(crate) fn of(headers: &Headers) -> Self {
        let mut accept = Self { decided: None, length: 0, bytes: [0; KEPT_BYTES_MAX] };
        let mut values = headers.get_all("accept");
        if let Some(value) = values.next() {
            if values.next().is_some() {
                accept.decided = Some(Self::preferred_of_all(headers));
                return accept;
            }
            match accept.bytes.get_mut(..value.len()) {
                Some(kept) => {
                    kept.copy_from_slice(value);
                    accept.length = value.len();
                }
                None => accept.decided = Some(Self::preferred(value)),
            }
        }
        accept
    }

    /// If none is acceptable it is JSON: an error that is not read is no better than one of another
    /// type.
    fn preferred(accept: &[u8]) -> Format {
        preferred(accept, &FORMATS).unwrap_or(Format::Json)
    }

    /// Several fields are one list (RFC 9110, 5.3).
    #[cold]
    fn preferred_of_all(headers: &Headers) -> Format {
        Self::preferred(&headers.get_all("accept").collect::<Vec<_>>().join(&b','))
    }

    /// That of a client which prefers this format.
    pub(crate) fn preferring(format: Format) -> Self {
        Self { decided: Some(format), length: 0, bytes: [0; KEPT_BYTES_MAX] }
    }

    pub(crate) fn format(&self) -> Format {
        self.decided
            .unwrap_or_else(|| Self::preferred(self.bytes.get(..self.length).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_accept_is_decided_at_once_and_a_short_one_kept() {
        let mut headers = Headers::new();
        headers.append("accept", "text/html").unwrap();
        assert_eq!(Accept::of(&headers).format(), Format::Html);
        let long = format!("{}text/html", "image/png;q=0.1, ".repeat(100));
        headers.insert("accept", long).unwrap();
        assert_eq!(Accept::of(&headers).format(), Format::Html);
    }

    #[test]
    fn several_fields_are_one_list() {
        let mut headers = Headers::new();
        headers.append("accept", "application/json;q=0.5").unwrap();
        headers.append("accept", "text/html").unwrap();
        assert_eq!(Accept::of(&headers).format(), Format::Html);
    }
}
