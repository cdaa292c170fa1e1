//! The `Vary` field, to which several middlewares add names.

use filoplume_runtime::Headers;

/// Adds the name of a request field that the response depends on (RFC 9110, 12.5.5).
pub(crate) fn add_vary(headers: &mut Headers, name: &str) {
    let is_said = headers
        .get_all("vary")
        .filter_map(|value| std::str::from_utf8(value).ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|said| said == "*" || said.eq_ignore_ascii_case(name));
    if !is_said {
        // The names in this crate are valid.
        let _ = headers.append("vary", name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_repeated() {
        let mut headers = Headers::new();
        add_vary(&mut headers, "Origin");
        add_vary(&mut headers, "origin");
        add_vary(&mut headers, "Accept-Encoding");
        assert_eq!(
            headers.get_all("vary").collect::<Vec<_>>(),
            [b"Origin".as_slice(), b"Accept-Encoding"]
        );

        let mut headers = Headers::new();
        headers.append("Vary", "accept , ORIGIN").unwrap();
        add_vary(&mut headers, "Origin");
        assert_eq!(headers.len(), 1);
        headers.append("vary", "*").unwrap();
        add_vary(&mut headers, "Cookie");
        assert_eq!(headers.len(), 2);
    }
}
