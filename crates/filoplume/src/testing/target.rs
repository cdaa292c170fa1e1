//! Request targets, and references that are resolved against them.

/// Returns the path of a target, without its query, and without the scheme and host of an absolute
/// form.
pub(super) fn path_of(target: &str) -> &str {
    let target = target.split('?').next().unwrap_or_default();
    match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    }
}

/// Returns the target within the app that a reference means in the response to a request for
/// `target` (RFC 3986, 5.2). `None` if it names another host with the same scheme.
pub(super) fn resolve(target: &str, reference: &str) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    match reference.split_once("://") {
        Some((_, rest)) => Some(rest.find('/').map_or("/", |slash| &rest[slash..]).to_owned()),
        None if reference.starts_with("//") => None,
        None if reference.starts_with('/') => Some(reference.to_owned()),
        None if reference.is_empty() => Some(target.to_owned()),
        None if reference.starts_with('?') => Some(format!("{path}{reference}")),
        None => {
            let folder = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
            let (relative, query) = match reference.find('?') {
                Some(at) => reference.split_at(at),
                None => (reference, ""),
            };
            Some(format!("{}{query}", without_dots(&format!("{folder}{relative}"))))
        }
    }
}

/// Removes the segments `.` and `..` (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let count = path.split('/').count();
    for (index, segment) in path.split('/').enumerate() {
        let is_last = index + 1 == count;
        match segment {
            "." | ".." => {
                // The first segment is the empty one in front of the first slash.
                if segment == ".." && segments.len() > 1 {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_browsers_do() {
        for (target, reference, expected) in [
            ("/a/b?x=1", "/m", Some("/m")),
            ("/a/b?x=1", "m", Some("/a/m")),
            ("/a/b?x=1", "m?y=2#top", Some("/a/m?y=2")),
            ("/a/b?x=1", "", Some("/a/b?x=1")),
            ("/a/b?x=1", "#top", Some("/a/b?x=1")),
            ("/a/b?x=1", "?y=2", Some("/a/b?y=2")),
            ("/a/b", "./m", Some("/a/m")),
            ("/a/b/", "../m", Some("/a/m")),
            ("/a/b/", "..", Some("/a/")),
            ("/a", "../../m", Some("/m")),
            ("/a", "https://localhost/m", Some("/m")),
            ("/a", "https://localhost", Some("/")),
            ("/a", "//other.example/m", None),
        ] {
            assert_eq!(resolve(target, reference).as_deref(), expected, "{target} {reference}");
        }
    }
}
