//! Values with parameters, such as `text/html; charset=utf-8` (RFC 9110, 5.6.6).

use std::borrow::Cow;

/// Returns the value without its parameters.
#[inline]
pub(crate) fn essence(value: &str) -> &str {
    trim(value.split(';').next().unwrap_or_default())
}

/// Returns the parameters of a value.
pub(crate) fn parameters(value: &str) -> Parameters<'_> {
    let essence = value.split(';').next().unwrap_or_default();
    Parameters { rest: value.get(essence.len()..).unwrap_or_default() }
}

/// An iterator over the parameters of a value, with names as they were written. If a part is not a
/// parameter, it returns one `Err` and ends.
pub(crate) struct Parameters<'a> {
    /// The rest, from the next `;`.
    rest: &'a str,
}

/// A part is not a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<(&'a str, Cow<'a, str>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            self.rest = "";
            return None;
        }
        let parameter = parameter(rest);
        self.rest = parameter.as_ref().map_or("", |(_, _, rest)| rest);
        Some(parameter.map(|(name, value, _)| (name, value)))
    }
}

/// Parses the first parameter of a text, and returns the rest.
fn parameter(text: &str) -> Result<(&str, Cow<'_, str>, &str), Malformed> {
    let (name, value) = text.split_once('=').ok_or(Malformed)?;
    if !is_token(name) {
        return Err(Malformed);
    }
    let (value, rest) = match value.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let end = value.find(';').unwrap_or(value.len());
            let (value, rest) = value.split_at(end);
            if value.contains('"') {
                return Err(Malformed);
            }
            (Cow::Borrowed(trim(value)), rest)
        }
    };
    let rest = rest.trim_start_matches([' ', '\t']);
    if !(rest.is_empty() || rest.starts_with(';')) {
        return Err(Malformed);
    }
    Ok((name, value, rest))
}

/// Decodes a quoted string, and returns the rest. A backslash escapes only quotes and itself,
/// because some browsers send unescaped backslashes in file names.
fn unquote(quoted: &str) -> Result<(Cow<'_, str>, &str), Malformed> {
    let mut unescaped = String::new();
    let mut begun = 0;
    let mut bytes = quoted.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                let (last, rest) = (&quoted[begun..at], &quoted[at + 1..]);
                if unescaped.is_empty() {
                    return Ok((Cow::Borrowed(last), rest));
                }
                unescaped.push_str(last);
                return Ok((Cow::Owned(unescaped), rest));
            }
            b'\\' if quoted[at + 1..].starts_with(['"', '\\']) => {
                unescaped.push_str(&quoted[begun..at]);
                bytes.next();
                begun = at + 1;
            }
            _ => {}
        }
    }
    Err(Malformed)
}

/// Returns whether a text is a token (RFC 9110, 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Trims optional whitespace (RFC 9110, 5.6.3).
#[inline]
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: &str) -> Result<Vec<(String, String)>, Malformed> {
        parameters(value)
            .map(|parameter| parameter.map(|(name, value)| (name.to_owned(), value.into_owned())))
            .collect()
    }

    fn one(name: &str, value: &str) -> Result<Vec<(String, String)>, Malformed> {
        Ok(vec![(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn parameters_are_tokens_or_quoted() {
        assert_eq!(all("text/html"), Ok(vec![]));
        assert_eq!(all("text/html;"), Ok(vec![]));
        assert_eq!(all("text/html ; charset=utf-8 ;; "), one("charset", "utf-8"));
        assert_eq!(all(r#"a; name="x;y""#), one("name", "x;y"));
        assert_eq!(all(r#"a; name="C:\temp\\x \"y\"""#), one("name", r#"C:\temp\x "y""#));
        assert_eq!(all(r#"a; name="""#), one("name", ""));
        assert_eq!(all(r#"a; name="\"""#), one("name", "\""));
        assert_eq!(all("a; name=ü.txt"), one("name", "ü.txt"));
    }

    #[test]
    fn malformed_parameters_are_an_error() {
        for value in [
            r#"a; b="c"#,
            r#"a; b="c\""#,
            r#"a; b="c"d"#,
            "a; b",
            "a; =b",
            "a; b c=d",
            r#"a; b=c"d"#,
        ] {
            assert_eq!(all(value), Err(Malformed), "{value}");
        }
    }
}
