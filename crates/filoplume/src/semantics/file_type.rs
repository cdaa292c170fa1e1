//! The media type of a file by its extension.

/// Returns the media type for the name of a file, if its extension is known. Text types have the
/// charset UTF-8.
pub(crate) fn content_type(name: &str) -> Option<String> {
    let known = mime_guess::from_path(name).first_raw()?;
    Some(if known.starts_with("text/") {
        format!("{known}; charset=utf-8")
    } else {
        known.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_charset_and_unknown_extensions_have_no_type() {
        let rows = [
            ("a.html", Some("text/html; charset=utf-8")),
            ("a.CSS", Some("text/css; charset=utf-8")),
            ("a.txt", Some("text/plain; charset=utf-8")),
            ("a.js", Some("text/javascript; charset=utf-8")),
            ("a.json", Some("application/json")),
            ("a.svg", Some("image/svg+xml")),
            ("a.wasm", Some("application/wasm")),
            ("a.unheardof", None),
            ("Makefile", None),
        ];
        for (path, expected) in rows {
            assert_eq!(content_type(path).as_deref(), expected, "{path}");
        }
    }
}
