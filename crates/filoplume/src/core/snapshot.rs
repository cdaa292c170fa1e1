//! A copy of a request, for error pages in development mode.

use filoplume_runtime::{Headers, Request};

/// A copy of a request, as the development error page shows it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// The maximum length of a header value that is shown.
const VALUE_CHARS_MAX: usize = 1000;

impl Snapshot {
    pub(crate) fn of(request: &Request) -> Self {
        let headers = request.headers().iter();
        Self {
            method: request.method().to_string(),
            target: request.target().to_owned(),
            path: request.path().to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), shown(name, value))).collect(),
        }
    }
}

fn shown(name: &str, value: &[u8]) -> String {
    // The page may be shown to other people or copied into a bug report.
    if Headers::is_secret(name) {
        return format!("(hidden, {} bytes)", value.len());
    }
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown("Authorization", b"Bearer abc"), "(hidden, 10 bytes)");
        assert_eq!(shown("Cookie", b"a=b"), "(hidden, 3 bytes)");
        for name in
            ["X-CSRF-Token", "X-Api-Key", "X-Auth-Key", "X-Session-Id", "Proxy-Authorization"]
        {
            assert_eq!(shown(name, b"abc"), "(hidden, 3 bytes)", "{name}");
        }
        assert_eq!(shown("Accept", b"*/*"), "*/*");
        assert_eq!(shown("X-Bytes", b"a\xff"), "a\u{fffd}");
        assert_eq!(shown("X-Long", &[b'a'; 2000]).chars().count(), 1001);
    }
}
