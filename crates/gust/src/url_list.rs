//! Files of weighted requests (`--urls`).

use http::Method;

use crate::target::Target;

/// The largest sum of all weights: the order of the requests has as many entries.
pub(crate) const WEIGHTS_MAX: u64 = 100_000;

/// One line of a file of requests.
pub(crate) struct UrlLine {
    pub(crate) weight: u64,
    pub(crate) method: Option<Method>,
    pub(crate) path: String,
}

impl UrlLine {
    /// Parses a line, or returns `None` for an empty line or a comment.
    pub(crate) fn parse(line: &str, number: usize) -> Result<Option<Self>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let mut words: Vec<_> = line.split_whitespace().collect();
        let path = words.pop().unwrap_or_default();
        let weight = words.first().and_then(|word| word.parse().ok());
        if let Some(weight) = weight {
            words.remove(0);
            if weight > WEIGHTS_MAX {
                return Err(format!(
                    "line {number}: the weight is {weight}, but must not exceed {WEIGHTS_MAX}"
                ));
            }
        }
        let method = words
            .pop()
            .map(parse_method)
            .transpose()
            .map_err(|error| format!("line {number}: {error}"))?;
        let path = match path.strip_prefix("http://") {
            Some(_) => Target::parse(path).map_err(|error| format!("line {number}: {error}"))?.path,
            None => path.to_owned(),
        };
        if !words.is_empty() || !path.starts_with('/') {
            return Err(format!("line {number} is {line:?}; write [WEIGHT] [METHOD] /PATH"));
        }
        Ok(Some(Self { weight: weight.unwrap_or(1), method, path }))
    }
}

/// Parses the name of a method that a request can have.
pub(crate) fn parse_method(name: &str) -> Result<Method, String> {
    match Method::from_bytes(name.as_bytes()) {
        Ok(Method::CONNECT) => Err("CONNECT opens a tunnel, so it cannot be repeated".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{name:?} is not a method")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_weight_a_method_and_a_path() {
        let of = |line| {
            UrlLine::parse(line, 7)
                .map(|line| line.map(|line| (line.weight, line.method, line.path)))
        };
        assert_eq!(of("/a?b"), Ok(Some((1, None, "/a?b".to_owned()))));
        assert_eq!(of(" 3 /a"), Ok(Some((3, None, "/a".to_owned()))));
        assert_eq!(of("3 POST http://h/a"), Ok(Some((3, Some(Method::POST), "/a".to_owned()))));
        assert_eq!(of("DELETE /a"), Ok(Some((1, Some(Method::DELETE), "/a".to_owned()))));
        assert_eq!(of("# a comment"), Ok(None));
        assert!(of("3 4 5 /a").unwrap_err().contains("line 7"));
        let heavy = of("18446744073709551615 /a").unwrap_err();
        assert!(heavy.starts_with("line 7: the weight is 18446744073709551615"), "{heavy}");
        assert!(of("100001 /a").is_err() && of("100000 /a").is_ok());
        assert!(of("a").unwrap_err().contains("[WEIGHT] [METHOD] /PATH"));
        assert!(of("GE@T /a").unwrap_err().contains("is not a method"));
    }
}
