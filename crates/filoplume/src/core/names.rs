//! Names of types for messages.

use std::any::type_name;

/// The public modules of this crate whose types are not at its root.
const MODULES: [&str; 10] = [
    "broadcast",
    "extract",
    "instances",
    "middleware",
    "response",
    "routing",
    "session",
    "sse",
    "template",
    "testing",
];

/// Returns the name of a type as a program writes it. It has no modules of the standard library,
/// and no private ones of this crate: `Arc<my_app::Db>`, `filoplume::sse::Hub`.
pub(crate) fn type_name_of<T: ?Sized>() -> String {
    public_names(type_name::<T>())
}

/// Returns the text of [`type_name`] with the names that a program writes.
pub(crate) fn public_names(type_name: &str) -> String {
    let mut rest = type_name;
    let mut name = String::with_capacity(rest.len());
    while let Some(character) = rest.chars().next() {
        let end = rest.find(|character| !is_of_path(character)).unwrap_or(rest.len());
        let (path, after) = rest.split_at(end);
        match path.rsplit_once("::") {
            Some((modules, last)) if is_standard(modules) => name.push_str(last),
            Some((modules, last)) if is_own(modules) => {
                name.push_str("filoplume::");
                if let Some(module) = public_module(modules, last) {
                    name.push_str(module);
                    name.push_str("::");
                }
                name.push_str(last);
            }
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

/// Returns whether a path belongs to this crate or to one whose types it re-exports.
fn is_own(modules: &str) -> bool {
    let first = modules.split("::").next().unwrap_or_default();
    matches!(first, "filoplume" | "filoplume_runtime" | "filoplume_http1" | "filoplume_websocket")
}

/// Returns the module in which programs find the types of a path of this crate. `None` for the
/// root.
fn public_module<'n>(modules: &'n str, name: &str) -> Option<&'n str> {
    let mut parts = modules.split("::");
    let (first, second) = (parts.next()?, parts.next());
    if first == "filoplume_runtime" {
        return modules.split("::").find(|module| matches!(*module, "pushed" | "tcp"));
    }
    if first == "filoplume_websocket" || second == Some("websocket") {
        return Some("websocket");
    }
    if modules.starts_with("filoplume::extract::headers")
        || modules == "filoplume::extract::language"
    {
        return Some("extract::headers");
    }
    // Types of private modules that are not at the root.
    match name {
        "RequestId" | "NextRefused" => Some("middleware"),
        "Proxies" | "RouteReport" | "Story" | "StoryKind" => Some("extract"),
        "RouteOptions" => Some("routing"),
        _ => second.filter(|module| MODULES.contains(module)),
    }
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
        assert_eq!(type_name_of::<(Arc<Option<Own>>, u8)>(), "(Arc<Option<filoplume::Own>>, u8)");
        assert_eq!(type_name_of::<HashMap<&'static str, [u8; 2]>>(), "HashMap<&str, [u8; 2]>");
        assert_eq!(type_name_of::<dyn std::error::Error + Send>(), "dyn Error + Send");
    }

    /// Regression: a message named `filoplume::sse::hub::Hub`, which no program can write.
    #[test]
    fn types_of_this_crate_have_their_public_names() {
        /// Compares the name of a type with the path by which the compiler finds it.
        macro_rules! check {
            ($($($path:ident)::+),+ $(,)?) => {
                $(
                    let path = stringify!($($path)::+).replace(' ', "");
                    assert_eq!(type_name_of::<$($path)::+>(), path);
                )+
            };
        }
        check!(
            filoplume::sse::Hub,
            filoplume::sse::Event,
            filoplume::sse::EventStream,
            filoplume::broadcast::Delivered,
            filoplume::pushed::Sender,
            filoplume::Error,
            filoplume::App,
            filoplume::routing::Router,
            filoplume::Headers,
            filoplume::Request,
            filoplume::Metrics,
            filoplume::TaskPool,
            filoplume::ClientAddr,
            filoplume::extract::headers::AcceptLanguage,
            filoplume::middleware::RequestId,
            filoplume::testing::TestClient,
            filoplume::extract::Proxies,
            filoplume::extract::Story,
            filoplume::routing::RouteOptions,
        );
        assert_eq!(
            type_name_of::<Option<filoplume::State<Arc<filoplume::sse::Hub>>>>(),
            "Option<filoplume::extract::State<Arc<filoplume::sse::Hub>>>"
        );
        assert_eq!(public_names("filoplume_app::a::B"), "filoplume_app::a::B");
    }
}
