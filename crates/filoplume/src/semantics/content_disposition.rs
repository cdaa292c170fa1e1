//! `Content-Disposition` of downloads (RFC 6266), with names that all clients interpret alike.

use std::fmt::Write as _;

/// The maximum length of a name in bytes of UTF-8. File systems allow 255; the rest is for suffixes
/// that browsers add, such as ` (1)`.
pub(crate) const NAME_BYTES_MAX: usize = 240;

/// The maximum length of an extension that is kept when a name is shortened.
const ENDING_BYTES_MAX: usize = 24;

/// The name of a file if nothing else is left of its name.
const NAME_OTHERWISE: &str = "download";

/// Returns the value that makes browsers save a response under a [safe](harmless_name) version of a
/// name.
///
/// A name with characters that not all browsers accept in a quoted string is also sent in the
/// encoding of RFC 8187. Clients that support that encoding prefer it (RFC 6266, 4.3).
pub(crate) fn attachment(name: &str) -> String {
    let name = harmless_name(name);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let mut value = format!("attachment; filename=\"{plain}\"");
    if plain != name {
        value.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            if is_attribute_byte(byte) {
                value.push(char::from(byte));
            } else {
                let _ = write!(value, "%{byte:02X}");
            }
        }
    }
    value
}

/// Returns whether all clients read a character in a quoted string as itself. Some decode `%41`
/// there, and some do not support `\"` (RFC 6266, appendix D).
fn is_plain(character: char) -> bool {
    matches!(character, ' '..='~') && !matches!(character, '"' | '\\' | '%')
}

/// `attr-char` of RFC 8187, 3.2.1.
fn is_attribute_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte)
}

/// Returns the last segment of a name, shortened, and without characters that are invisible or
/// reorder text.
pub(crate) fn harmless_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    // Characters that Windows does not allow in names become `_`. A colon would select another
    // stream of the file.
    let replace = |character| if "<>:\"|?*".contains(character) { '_' } else { character };
    let visible: String =
        last.chars().filter(|character| !is_invisible(*character)).map(replace).collect();
    // Windows ignores trailing dots and spaces, so `a.exe.` would be a program there.
    let trimmed = visible.trim().trim_end_matches(|c: char| c == '.' || c.is_whitespace());
    let cut = cut(trimmed);
    if cut.is_empty() { NAME_OTHERWISE.to_owned() } else { cut }
}

/// Returns whether a character is a control character, a line separator, or an invisible character
/// that changes how others are displayed. U+202E, for example, displays `gpj.exe` as `exe.jpg`.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}'..='\u{ffff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Shortens a name and keeps its extension.
fn cut(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let ending = name
        .rfind('.')
        .and_then(|dot| name.get(dot..))
        .filter(|ending| ending.len() <= ENDING_BYTES_MAX);
    let ending = ending.unwrap_or_default();
    let mut end = NAME_BYTES_MAX.saturating_sub(ending.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let stem = name.get(..end).unwrap_or_default();
    format!("{}{ending}", stem.trim_end_matches(|c: char| c == '.' || c.is_whitespace()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_are_quoted_and_others_encoded_too() {
        let rows = [
            ("report.csv", r#"attachment; filename="report.csv""#),
            ("a b (1).txt", r#"attachment; filename="a b (1).txt""#),
            ("it's; x=y, z.txt", r#"attachment; filename="it's; x=y, z.txt""#),
            ("naïve.txt", r#"attachment; filename="na_ve.txt"; filename*=UTF-8''na%C3%AFve.txt"#),
            (
                "€ rates.txt",
                r#"attachment; filename="_ rates.txt"; filename*=UTF-8''%E2%82%AC%20rates.txt"#,
            ),
            ("100%41.txt", r#"attachment; filename="100_41.txt"; filename*=UTF-8''100%2541.txt"#),
            (
                "日本.tar.gz",
                r#"attachment; filename="__.tar.gz"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.tar.gz"#,
            ),
        ];
        for (name, expected) in rows {
            assert_eq!(attachment(name), expected);
        }
    }

    #[test]
    fn hostile_names_are_sanitized() {
        let rows = [
            ("a\r\nset-cookie: a=b.txt", "aset-cookie_ a=b.txt"),
            ("a\"; filename=\"evil.exe", "a_; filename=_evil.exe"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\boot.ini", "boot.ini"),
            ("C:\\x\\y.txt", "y.txt"),
            ("/", "download"),
            ("a/", "download"),
            ("", "download"),
            (".", "download"),
            ("..", "download"),
            (". . .", "download"),
            (" \t a.txt \n", "a.txt"),
            ("a.exe. .", "a.exe"),
            ("a.txt:evil.exe", "a.txt_evil.exe"),
            ("a.txt::$DATA", "a.txt__$DATA"),
            ("a\0b\u{7f}\u{85}.txt", "ab.txt"),
            ("photo\u{202e}gpj.exe", "photogpj.exe"),
            ("\u{2066}a\u{2069}\u{200f}\u{feff}.txt", "a.txt"),
            ("a\u{2028}b\u{2029}.txt", "ab.txt"),
            ("<script>.html", "_script_.html"),
            (".bashrc", ".bashrc"),
            ("م\u{200c}ن.txt", "م\u{200c}ن.txt"),
        ];
        for (name, expected) in rows {
            assert_eq!(harmless_name(name), expected, "{name:?}");
        }
    }

    #[test]
    fn long_names_are_cut_between_letters_and_keep_their_ending() {
        let long = harmless_name(&format!("{}.tar.gz", "ä".repeat(5000)));
        assert!(long.len() <= NAME_BYTES_MAX && long.ends_with("ä.gz"), "{long}");
        let ending = harmless_name(&format!("a.{}", "x".repeat(5000)));
        assert_eq!(ending.len(), NAME_BYTES_MAX);
        assert_eq!(harmless_name(&format!("{}.txt", ".".repeat(5000))), ".txt");
    }

    proptest! {
        #[test]
        fn any_name_gives_one_parameter(name in any::<String>()) {
            let value = attachment(&name);
            prop_assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{value:?}");
            prop_assert_eq!(value.matches('"').count(), 2);
            prop_assert!(!value.contains('\\'), "{value:?}");
            prop_assert!(value.len() < 64 + NAME_BYTES_MAX * 4);
            let name = harmless_name(&name);
            prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX);
            prop_assert!(!name.contains(['/', '\\', '\r', '\n']));
            prop_assert_eq!(harmless_name(&name), name);
        }
    }
}
