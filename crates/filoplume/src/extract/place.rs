//! Where a typed input is wrong, as its sender would name it.

/// Returns the place of an error of serde, such as `items[2].price`; `None` if it is the whole input.
pub(crate) fn place(path: &serde_path_to_error::Path, message: &str) -> Option<String> {
    let path = Some(path.to_string()).filter(|path| path != ".");
    // A field that is not there has no path: the path ends at what should have it, and only serde's text names it.
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (path, missing) {
        (Some(path), Some(field)) => Some(format!("{path}.{field}")),
        (None, Some(field)) => Some(field.to_owned()),
        (path, None) => path,
    }
}
