//! Patterns: how they are written in an app, and the form that paths are matched against.

use std::fmt::Write as _;

use crate::core::captures::Capture;

/// A parsed pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The form that raw paths are matched against: the literal text is percent-encoded in its
    /// [normal form](normal_form), as on the wire.
    pub(crate) matched: String,
    /// The captures, in order.
    pub(crate) captures: Vec<Capture>,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// It begins with a slash. `{name}` captures a segment or the part of a segment that is not
    /// literal text. `{*name}` at the end captures the rest of the path. `{{` and `}}` are literal
    /// braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err(explain_start("a pattern begins", text));
        }
        check_for_other_notations(text)?;
        let mut pattern = Self { matched: String::with_capacity(text.len()), captures: Vec::new() };
        let mut literal = String::new();
        let mut captures_in_segment = 0;
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let after = &rest[character.len_utf8()..];
            rest = after;
            match character {
                '{' | '}' if after.starts_with(character) => {
                    literal.push(character);
                    rest = &after[1..];
                }
                '}' => {
                    return Err("a `}` without `{`; write a literal brace as `}}`".to_owned());
                }
                '{' => {
                    let Some((name, after)) = after.split_once('}') else {
                        return Err("a `{` is not closed; write a literal brace as `{{`".to_owned());
                    };
                    captures_in_segment += 1;
                    if captures_in_segment > 1 {
                        return Err("a segment can have only one capture; split it in the handler"
                            .to_owned());
                    }
                    pattern.add_literal(&std::mem::take(&mut literal));
                    pattern.add_capture(name, after)?;
                    rest = after;
                }
                '?' | '#' => {
                    return Err(format!(
                        "`{character}` is not part of a path; read the query with `Query`"
                    ));
                }
                '/' => {
                    captures_in_segment = 0;
                    literal.push('/');
                }
                other => literal.push(other),
            }
        }
        pattern.add_literal(&literal);
        pattern.measure();
        Ok(pattern)
    }

    fn add_literal(&mut self, text: &str) {
        self.matched.push_str(normal_form(text).as_deref().unwrap_or(text));
    }

    fn add_capture(&mut self, name: &str, after: &str) -> Result<(), String> {
        let (is_rest, name) = name.strip_prefix('*').map_or((false, name), |name| (true, name));
        let is_name =
            |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.');
        if name.is_empty() {
            return Err("a capture needs a name: `{id}`, `{*rest}`".to_owned());
        }
        if let Some((name, _)) = name.split_once(':') {
            return Err(format!(
                "a capture cannot have a pattern: write `{{{name}}}`; the type of `Path` \
                 decides what it can be"
            ));
        }
        // `{name...}` as in Go, and `{**name}` as in ASP.NET.
        let plain = without_marks(name);
        if plain != name {
            return Err(format!("the rest is captured by a star: write `{{*{plain}}}`"));
        }
        if !name.chars().all(is_name) {
            return Err(format!(
                "a capture name can contain letters, digits, `_`, `-` and `.`, unlike `{name}`"
            ));
        }
        if is_rest && !(after.is_empty() && self.matched.ends_with('/')) {
            return Err(format!(
                "`{{*{name}}}` captures the rest of the path, so it must be the last segment"
            ));
        }
        if self.captures.iter().any(|other| other.name == name) {
            return Err(format!("two captures have the name `{name}`"));
        }
        let star = if is_rest { "*" } else { "" };
        let _ = write!(self.matched, "{{{star}{name}}}");
        self.captures.push(Capture { name: name.to_owned(), skip: 0, suffix: 0, is_rest });
        Ok(())
    }

    /// Measures the literal text around the captures. Literal braces are already encoded.
    fn measure(&mut self) {
        let mut rest = self.matched.as_str();
        for capture in &mut self.captures {
            let Some((before, after)) = rest.split_once('{') else { return };
            let Some((_, after)) = after.split_once('}') else { return };
            capture.skip = before.len();
            capture.suffix = after.split(['/', '{']).next().map_or(0, str::len);
            rest = after;
        }
    }
}

/// Returns what to write in place of a pattern or prefix that does not begin with a slash.
#[cold]
fn explain_start(rule: &str, text: &str) -> String {
    let (before, after) = text.split_once('/').unwrap_or_default();
    let (path, without) = match before.as_bytes().last() {
        Some(b' ') => (after, ", without the method"),
        Some(b':') => {
            let path = after.trim_start_matches('/').split_once('/');
            (path.map_or("", |(_, path)| path), ", without scheme and host")
        }
        _ => (text, ""),
    };
    format!("{rule} with `/`: write \"/{path}\"{without}")
}

/// Rejects captures in the notation of other frameworks, which would be literal text here.
///
/// `$id` is allowed, although it may be meant as a capture: APIs have paths such as `/$metadata`.
fn check_for_other_notations(text: &str) -> Result<(), String> {
    for segment in text.split('/') {
        let mut literally = "";
        let (star, name) = match segment.as_bytes() {
            [b':', _, ..] => ("", &segment[1..]),
            [b'*', ..] => ("*", without_marks(segment)),
            [b'<', .., b'>'] => {
                ("", segment[1..segment.len() - 1].rsplit(':').next().unwrap_or_default())
            }
            [b'[', inside @ .., b']'] => {
                literally = "; literal brackets are `%5B` and `%5D`";
                (if inside.contains(&b'.') { "*" } else { "" }, without_marks(segment))
            }
            _ => continue,
        };
        return Err(format!(
            "captures are written in braces: `{{{star}{name}}}` instead of `{segment}`{literally}"
        ));
    }
    Ok(())
}

/// Returns the name of a capture without the marks that other notations have around it, and `rest`
/// if there is no name.
#[cold]
fn without_marks(text: &str) -> &str {
    match text.trim_matches(|character| matches!(character, '*' | '.' | '[' | ']')) {
        "" => "rest",
        name => name,
    }
}

/// Joins a prefix and the pattern of a nested route. The pattern `/` stands for the prefix itself.
pub(crate) fn join(prefix: &str, pattern: &str) -> String {
    match pattern {
        "/" if !prefix.is_empty() => prefix.to_owned(),
        _ => format!("{prefix}{pattern}"),
    }
}

/// Checks a prefix: `/api` is valid; `api`, `/api/` and `/{*rest}` are not.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), String> {
    let shorter = prefix.trim_end_matches('/');
    if shorter.is_empty() {
        return Err(
            "a prefix names a path; use `merge` to join routers without a prefix".to_owned()
        );
    }
    if !shorter.starts_with('/') {
        return Err(explain_start("a prefix must begin", shorter));
    }
    if shorter != prefix {
        return Err(format!("a prefix cannot end with `/`: write \"{shorter}\""));
    }
    if prefix.contains("{*") {
        return Err("a prefix cannot capture the rest of the path".to_owned());
    }
    Pattern::parse(prefix).map(drop)
}

/// Returns the normal form of a path (RFC 3986, 6.2.2), in which patterns are matched. Returns
/// `None` if the path is already normal. Characters that are allowed in a segment are plain; all
/// others are percent-encoded with uppercase digits. An encoded slash stays encoded.
pub(crate) fn normal_form(path: &str) -> Option<String> {
    if path.bytes().all(|byte| byte == b'/' || is_plain(byte)) {
        return None;
    }
    let mut normal = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let decoded = match (byte, after) {
            (b'%', [high, low, ..]) => {
                hex_digit(*high).zip(hex_digit(*low)).map(|(high, low)| high << 4 | low)
            }
            _ => None,
        };
        match decoded {
            Some(decoded) => {
                rest = &after[2..];
                push_byte(&mut normal, decoded);
            }
            None if byte == b'/' || byte == b'%' => normal.push(char::from(byte)),
            None => push_byte(&mut normal, byte),
        }
    }
    (normal != path).then_some(normal)
}

/// `pchar` without percent-encoding (RFC 3986, 3.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

fn push_byte(text: &mut String, byte: u8) {
    if is_plain(byte) {
        text.push(char::from(byte));
    } else {
        text.push('%');
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
        }
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::captures::Captures;

    fn matched(pattern: &str) -> String {
        Pattern::parse(pattern).map(|pattern| pattern.matched).unwrap_or_else(|mistake| mistake)
    }

    #[test]
    fn patterns_are_matched_as_they_are_on_the_wire() {
        assert_eq!(matched("/café/{id}"), "/caf%C3%A9/{id}");
        assert_eq!(matched("/caf%c3%a9/{größe}"), "/caf%C3%A9/{größe}");
        assert_eq!(matched("/a b"), "/a%20b");
        assert_eq!(matched("/a%20b"), "/a%20b");
        assert_eq!(matched("/%7Euser"), "/~user");
        assert_eq!(matched("/50%"), "/50%");
        assert_eq!(matched("/a|b/@{name}:x"), "/a%7Cb/@{name}:x");
    }

    #[test]
    fn braces_are_doubled_and_encoded() {
        assert_eq!(matched("/{{x}}"), "/%7Bx%7D");
        assert_eq!(matched("/{{{id}}}"), "/%7B{id}%7D");
        assert_eq!(Pattern::parse("/{{x}}").map(|pattern| pattern.captures), Ok(Vec::new()));
    }

    #[test]
    fn captures_have_names() {
        let values = |pattern: &str, path: &str| {
            let pattern = Pattern::parse(pattern).expect("a good pattern");
            let values = Captures::new(&pattern.captures, path)
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            values.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(values("/a/{b}/c-{d}.txt/{*e}", "/a/1/c-2.3.txt/4/5/"), "b=1 d=2.3 e=4/5/");
        assert_eq!(values("/{a}", "/x"), "a=x");
        assert_eq!(values("/café/{a}/", "/caf%C3%A9/%2F/"), "a=%2F");
        assert_eq!(values("/{{x}}-{a}.{{y}}", "/%7Bx%7D-1.%7By%7D"), "a=1");
        assert_eq!(values("/plain", "/plain"), "");
        // A path that does not match must not panic.
        assert_eq!(values("/long/{a}.txt", "/l"), "");
        assert_eq!(values("/{a}.txt", "/x"), "a=");
    }

    #[test]
    fn patterns_of_other_frameworks_are_explained() {
        assert!(matched("/users/:id").contains("`{id}` instead of `:id`"));
        assert!(matched("/files/*rest").contains("`{*rest}`"));
        assert!(matched("/files/*").contains("`{*rest}` instead of `*`"));
        assert!(matched("/users/<int:id>").contains("`{id}` instead of `<int:id>`"));
        assert!(matched("/users/{id:[0-9]+}").contains("write `{id}`"));
        assert!(matched("/a?b=1").contains("`Query`"));
        for rest in ["{rest...}", "{...rest}", "{**rest}", "{rest*}", "**", "[...rest]"] {
            assert!(matched(&format!("/files/{rest}")).contains("`{*rest}`"), "{rest}");
        }
        assert!(matched("/users/[id]").contains("`{id}` instead of `[id]`"));
        assert_eq!(matched("/users/%5Bid%5D"), "/users/%5Bid%5D");
        assert_eq!(matched("/$metadata"), "/$metadata");
    }

    #[test]
    fn the_root_of_a_nested_router_is_the_prefix() {
        assert_eq!(join("/api", "/"), "/api");
        assert_eq!(join("/api", "/users"), "/api/users");
        assert_eq!(join("", "/"), "/");
    }

    #[test]
    fn a_path_has_one_normal_form() {
        assert_eq!(normal_form("/plain/~user/@me"), None);
        assert_eq!(normal_form("/caf%C3%A9"), None);
        assert_eq!(normal_form("/caf%c3%a9").as_deref(), Some("/caf%C3%A9"));
        assert_eq!(normal_form("/%7euser/%40me").as_deref(), Some("/~user/@me"));
        assert_eq!(normal_form("/{x}|").as_deref(), Some("/%7Bx%7D%7C"));
        assert_eq!(normal_form("/a%2fb").as_deref(), Some("/a%2Fb"), "an encoded slash stays one");
        assert_eq!(normal_form("/100%"), None);
        assert_eq!(normal_form("/%zz"), None);
    }
}
