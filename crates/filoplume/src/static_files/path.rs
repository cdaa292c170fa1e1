//! From the path of a request to the path of a file: the one place where hostile names are refused.

use percent_encoding::percent_decode_str;

/// The path of a file or folder below the root: segments separated by `/`, none of them `.`, `..`
/// or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePath {
    /// Without a slash at either end; empty for the root.
    pub(super) text: String,
    /// Whether a slash stood at the end: a folder is meant.
    pub(super) is_folder: bool,
}

impl FilePath {
    /// Reads a path as it came on the wire, without the slash at its beginning. `None`: there
    /// cannot be such a file.
    ///
    /// It is split first and then decoded, once, so that an encoded slash cannot separate anything
    /// and `%252e` is not a dot.
    pub(super) fn parse(raw: &str, allows_hidden: bool) -> Option<Self> {
        if raw.is_empty() {
            return Some(Self { text: String::new(), is_folder: true });
        }
        let (raw, is_folder) = match raw.strip_suffix('/') {
            Some(raw) => (raw, true),
            None => (raw, false),
        };
        let mut text = String::with_capacity(raw.len());
        for segment in raw.split('/') {
            if !text.is_empty() {
                text.push('/');
            }
            text.push_str(
                &decode(segment).filter(|name| is_name(name, allows_hidden, cfg!(windows)))?,
            );
        }
        Some(Self { text, is_folder })
    }

    /// Reads a path that is not encoded, of a file that is not hidden. `None`: there cannot be such
    /// a file.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let is_file = name.split('/').all(|segment| is_name(segment, false, cfg!(windows)));
        is_file.then(|| Self { text: name.to_owned(), is_folder: false })
    }

    /// The path of a file in this folder.
    pub(super) fn join(&self, name: &str) -> String {
        if self.text.is_empty() { name.to_owned() } else { format!("{}/{name}", self.text) }
    }
}

/// Decodes a segment; `None` if a `%` stands alone, or what comes out is not UTF-8.
fn decode(segment: &str) -> Option<String> {
    let mut rest = segment.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        if !rest.get(at + 1..at + 3)?.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = rest.get(at + 3..)?;
    }
    Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned())
}

/// Whether this can be the name of a file that is served, and nothing else.
fn is_name(name: &str, allows_hidden: bool, on_windows: bool) -> bool {
    let is_plain = !name.is_empty()
        && name != "."
        && name != ".."
        // A backslash separates on Windows, and browsers take it for a slash in redirects.
        && !name.chars().any(|character| character.is_control() || matches!(character, '/' | '\\'));
    is_plain
        && (allows_hidden || !name.starts_with('.'))
        && (!on_windows || is_name_on_windows(name))
}

/// Windows cuts dots and spaces off, knows streams and drives behind a colon, and has devices in
/// every folder.
fn is_name_on_windows(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let is_numbered_device = ["COM", "LPT"].iter().any(|device| {
        let number = stem.strip_prefix(device);
        number.is_some_and(|number| {
            number.chars().count() == 1 && number.contains(|digit: char| digit.is_numeric())
        })
    });
    !name.ends_with(['.', ' '])
        && !name.contains([':', '*', '?', '<', '>', '|', '"'])
        && !["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"].contains(&&*stem)
        && !is_numbered_device
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(raw: &str) -> Option<String> {
        let path = FilePath::parse(raw, false)?;
        Some(format!("{}{}", path.text, if path.is_folder { " (folder)" } else { "" }))
    }

    #[test]
    fn paths_are_decoded_once_and_after_they_were_split() {
        let rows = [
            ("", " (folder)"),
            ("a.txt", "a.txt"),
            ("docs/", "docs (folder)"),
            ("docs/a%20b.txt", "docs/a b.txt"),
            ("caf%C3%A9", "café"),
            ("100%25", "100%"),
            ("%252e%252e", "%2e%2e"),
            ("a..b/c...", "a..b/c..."),
            ("c:/x", "c:/x"),
        ];
        for (raw, expected) in rows {
            if cfg!(windows) && raw.contains(':') {
                continue;
            }
            assert_eq!(shown(raw).as_deref(), Some(expected), "{raw}");
        }
    }

    #[test]
    fn hostile_paths_are_no_files() {
        let rows = [
            "..",
            "../a",
            "a/..",
            "a/../b",
            ".",
            "./a",
            "a/.",
            "%2e%2e",
            "%2E%2e/a",
            ".%2e/a",
            "..%2fa",
            "..%2Fetc%2fpasswd",
            "a%2fb",
            "a%5cb",
            "..%5ca",
            "%5c..",
            "a\\b",
            "\\\\host\\share",
            "/",
            "//",
            "/etc/passwd",
            "a//b",
            "a//",
            "%00",
            "a.txt%00.html",
            "a%0ab",
            "a%7f",
            "%c2%85",
            "%",
            "a%2",
            "a%zz",
            "a%+1",
            "%ff",
            "%c0%ae%c0%ae/a",
            ".git",
            ".git/config",
            "a/.env",
            "%2egit",
        ];
        for raw in rows {
            assert_eq!(shown(raw), None, "{raw}");
        }
    }

    #[test]
    fn hidden_files_are_there_if_they_may_and_dots_still_are_not() {
        assert!(FilePath::parse(".well-known/a", true).is_some());
        for raw in [".", "..", "a/../b", "%2e%2e"] {
            assert_eq!(FilePath::parse(raw, true), None, "{raw}");
        }
    }

    #[test]
    fn devices_drives_and_streams_are_no_files_on_windows() {
        for name in [
            "con",
            "NUL",
            "aux.txt",
            "nul .txt",
            "com1",
            "COM9.log",
            "lpt¹",
            "c:",
            "a.txt:stream",
            "a.txt::$DATA",
            "a.",
            "a ",
            "a?b",
        ] {
            assert!(!is_name(name, false, true), "{name}");
        }
        for name in ["console", "comet", "com10", "null.txt", "a b.txt"] {
            assert!(is_name(name, false, true), "{name}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_out_stays_below_the_root(raw in "([./\\\\a%]|%2[eEfF]|%5[cC]|%00){0,16}") {
            if let Some(path) = FilePath::parse(&raw, true) {
                prop_assert!(!path.text.starts_with('/') && !path.text.contains(['\\', '\0']));
                let is_safe = |name: &str| !matches!(name, "." | "..") && (!name.is_empty() || path.text.is_empty());
                prop_assert!(path.text.split('/').all(is_safe), "{}", path.text);
            }
        }
    }
}
