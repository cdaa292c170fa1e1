//! The syntax of `Sec-WebSocket-Extensions` (RFC 6455 section 9.1).

use std::borrow::Cow;

/// An extension with its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extension<'a> {
    pub(super) name: &'a str,
    pub(super) params: Vec<(&'a str, Option<Cow<'a, str>>)>,
}

/// Most extensions in a field. Browsers offer one, some libraries two or three of a kind.
const EXTENSIONS_MAX: usize = 32;
/// Most parameters of an extension. `permessage-deflate` has four.
const PARAMS_MAX: usize = 16;

/// Returns the extensions of a field value, or `None` if it is malformed or too long.
pub(super) fn parse(value: &str) -> Option<Vec<Extension<'_>>> {
    let mut extensions = Vec::new();
    let mut rest = value;
    loop {
        // Empty elements of a list are allowed (RFC 9110 section 5.6.1).
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return Some(extensions);
        }
        if extensions.len() == EXTENSIONS_MAX {
            return None;
        }
        let (name, after) = token(rest)?;
        let mut extension = Extension { name, params: Vec::new() };
        rest = skip_space(after);
        while let Some(after) = rest.strip_prefix(';') {
            if extension.params.len() == PARAMS_MAX {
                return None;
            }
            let (name, after) = token(skip_space(after))?;
            rest = skip_space(after);
            let mut value = None;
            if let Some(after) = rest.strip_prefix('=') {
                let (found, after) = token_or_quoted(skip_space(after))?;
                value = Some(found);
                rest = skip_space(after);
            }
            extension.params.push((name, value));
        }
        extensions.push(extension);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// Splits a token off.
fn token(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|found: char| !is_token(found)).unwrap_or(text.len());
    let (token, rest) = text.split_at_checked(end)?;
    (!token.is_empty()).then_some((token, rest))
}

/// Splits a value off. A quoted one must be a token too (RFC 6455 section 9.1).
fn token_or_quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = token(text)?;
        return Some((Cow::Borrowed(token), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' if value.is_empty() => return None,
            '"' => return Some((Cow::Owned(value), characters.as_str())),
            '\\' => value.push(characters.next().filter(|found| is_token(*found))?),
            found if is_token(found) => value.push(found),
            _ => return None,
        }
    }
}

const fn is_token(found: char) -> bool {
    found.is_ascii_alphanumeric()
        || matches!(
            found,
            '!' | '#'
                | '$'
                | '%'
                | '&'
                | '\''
                | '*'
                | '+'
                | '-'
                | '.'
                | '^'
                | '_'
                | '`'
                | '|'
                | '~'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_value_becomes_extensions_or_nothing() {
        let rows = [
            ("", Some("")),
            ("a", Some("a")),
            (" a , b ", Some("a b")),
            ("a,,b,", Some("a b")),
            ("a; b; c=1", Some("a;b;c=1")),
            ("a;b=\"1\\0\"", Some("a;b=10")),
            ("a;b = 1", Some("a;b=1")),
            ("a b", None),
            ("a;", None),
            (";a", None),
            ("a;=1", None),
            ("a;b=", None),
            ("a;b=\"", None),
            ("a;b=\"\"", None),
            ("a;b=\"1 0\"", None),
            ("a/b", None),
            ("\u{e4}", None),
        ];
        for (value, expected) in rows {
            let found = parse(value).map(|extensions| {
                let shown = extensions.iter().map(|extension| {
                    let params = extension.params.iter().map(|(name, value)| match value {
                        Some(value) => format!(";{name}={value}"),
                        None => format!(";{name}"),
                    });
                    extension.name.to_owned() + &params.collect::<String>()
                });
                shown.collect::<Vec<_>>().join(" ")
            });
            assert_eq!(found.as_deref(), expected, "{value:?}");
        }
    }

    #[test]
    fn as_many_extensions_and_parameters_as_allowed_are_read_and_no_more() {
        let extensions = |count| parse(&vec!["a"; count].join(",")).map(|found| found.len());
        assert_eq!(extensions(EXTENSIONS_MAX), Some(EXTENSIONS_MAX));
        assert_eq!(extensions(EXTENSIONS_MAX + 1), None);

        let params = |count| {
            let value = format!("a{}", ";b".repeat(count));
            parse(&value).map(|found| found[0].params.len())
        };
        assert_eq!(params(PARAMS_MAX), Some(PARAMS_MAX));
        assert_eq!(params(PARAMS_MAX + 1), None);
    }
}
