//! Names of types for messages.

use std::any::type_name;

/// Returns the name of a type, without the modules of the standard library: `Arc<my_app::Db>`.
pub(crate) fn type_name_of<T: ?Sized>() -> String {
    let mut rest = type_name::<T>();
    let mut name = String::with_capacity(rest.len());
    while let Some(character) = rest.chars().next() {
        let end = rest.find(|character| !is_of_path(character)).unwrap_or(rest.len());
        let (path, after) = rest.split_at(end);
        match path.rsplit_once("::") {
            Some((modules, last)) if is_standard(modules) => name.push_str(last),
            _ => name.push_str(path),
        }
        rest = after;
        if end == 0 {
            name.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    name
}

fn is_of_path(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | ':')
}

fn is_standard(modules: &str) -> bool {
    let first = modules.split("::").next().unwrap_or_default();
    matches!(first, "alloc" | "core" | "std")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;

    struct Own;

    #[test]
    fn modules_of_the_standard_library_are_omitted() {
        assert_eq!(type_name_of::<String>(), "String");
        assert_eq!(
            type_name_of::<(Arc<Option<Own>>, u8)>(),
            "(Arc<Option<filoplume::core::names::tests::Own>>, u8)"
        );
        assert_eq!(type_name_of::<HashMap<&'static str, [u8; 2]>>(), "HashMap<&str, [u8; 2]>");
        assert_eq!(type_name_of::<dyn std::error::Error + Send>(), "dyn Error + Send");
    }
}
