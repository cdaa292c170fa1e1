//! Turns the path of a request into the path of a file. This is the only place that refuses hostile
//! names.

use percent_encoding::percent_decode_str;

/// The path of a file or folder below the root: segments separated by `/`, none of them `.`, `..`
/// or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePath {
    /// Without a slash at either end; empty for the root.
    pub(super) text: String,
    /// Whether the path had a slash at the end, which means a folder.
    pub(super) is_folder: bool,
}

impl FilePath {
    /// Parses a path from the wire, without its leading slash. Returns `None` if no file can have
    /// this path.
    ///
    /// The path is split first and then decoded once, so that an encoded slash is not a separator,
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

    /// Parses an unencoded path of a file that is not hidden. Returns `None` if no file can have
    /// this path.
    pub(super) fn parse_plain(name: &str) -> Option<Self> {
        let is_file = name.split('/').all(|segment| is_name(segment, false, cfg!(windows)));
        is_file.then(|| Self { text: name.to_owned(), is_folder: false })
    }

    /// Returns the path of a file in this folder.
    pub(super) fn join(&self, name: &str) -> String {
        if self.text.is_empty() { name.to_owned() } else { format!("{}/{name}", self.text) }
    }
}

/// Decodes a segment. Returns `None` if a `%` is not followed by two digits, or the result is not
/// UTF-8.
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

/// Returns whether a segment can only be the name of a file that is served.
fn is_name(name: &str, allows_hidden: bool, on_windows: bool) -> bool {
    let is_plain = !name.is_empty()
        && name != "."
        && name != ".."
        // A backslash is a separator on Windows, and browsers treat it as a slash in redirects.
        && !name.chars().any(|character| character.is_control() || matches!(character, '/' | '\\'));
    is_plain
        && (allows_hidden || !name.starts_with('.'))
        && (!on_windows || is_name_on_windows(name))
}

/// Windows removes dots and spaces at the end, uses colons for streams and drives, and has devices
/// in every folder.
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
    fn paths_are_split_first_and_then_decoded_once() {
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
    fn hostile_paths_are_not_files() {
        let rows = [
            "..",
            "../a",
            "a/..",
            "a/../b",
            ".",
            "./a",
            "a/.",
            "%2e%2e",
            "%2",
            "%2g",
            "%g2",
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
    fn hidden_files_are_served_if_allowed_but_dot_segments_never() {
        assert!(FilePath::parse(".well-known/a", true).is_some());
        for raw in [".", "..", "a/../b", "%2e%2e"] {
            assert_eq!(FilePath::parse(raw, true), None, "{raw}");
        }
    }

    #[test]
    fn devices_drives_and_streams_are_not_files_on_windows() {
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
        fn every_parsed_path_stays_below_the_root(raw in "([./\\\\a%]|%2[eEfF]|%5[cC]|%00){0,16}") {
            if let Some(path) = FilePath::parse(&raw, true) {
                prop_assert!(!path.text.starts_with('/') && !path.text.contains(['\\', '\0']));
                let is_safe = |name: &str| {
                    !matches!(name, "." | "..") && (!name.is_empty() || path.text.is_empty())
                };
                prop_assert!(path.text.split('/').all(is_safe), "{}", path.text);
            }
        }
    }
}
