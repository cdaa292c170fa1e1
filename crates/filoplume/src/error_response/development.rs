//! What developers are shown of an error beside what the client is told.

use filoplume_runtime::{Request, Response};

use super::hints;
use crate::core::context::Context;
use crate::core::error::Error;
use crate::routing::CompiledRoute;

/// A request as the page for developers shows it.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
}

/// The longest header value that is shown.
const VALUE_CHARS_MAX: usize = 1000;

/// Parts of the names of headers that give access to something. A page may be shown to others, or end in a bug report.
const SECRETS: [&str; 9] =
    ["auth", "cookie", "token", "secret", "password", "key", "session", "credential", "signature"];

impl Snapshot {
    pub(super) fn of(request: &Request) -> Self {
        let headers = request.headers().iter();
        Self {
            method: request.method().to_string(),
            target: request.target().to_owned(),
            path: request.path().to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), shown(name, value))).collect(),
        }
    }
}

fn shown(name: &str, value: &[u8]) -> String {
    let name = name.to_ascii_lowercase();
    if SECRETS.iter().any(|secret| name.contains(secret)) {
        return format!("(hidden, {} bytes)", value.len());
    }
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// What was found out about an error.
pub(super) struct Findings<'a> {
    pub(super) request: &'a Snapshot,
    /// The nearest first. A panic is one of them.
    pub(super) causes: Vec<String>,
    /// `None` if no route matched.
    pub(super) route: Option<&'a CompiledRoute>,
    pub(super) hint: Option<String>,
    /// The routes to choose from, if none matched.
    pub(super) routes: Vec<RouteLine<'a>>,
}

/// A route in a list.
pub(super) struct RouteLine<'a> {
    pub(super) methods: &'a str,
    pub(super) pattern: &'a str,
    pub(super) is_alike: bool,
}

/// The longest list of routes that is shown.
const ROUTES_MAX: usize = 500;

impl<'a> Findings<'a> {
    pub(super) fn of(
        error: &Error,
        response: &Response,
        request: &'a Snapshot,
        context: Context<'a>,
    ) -> Self {
        let causes = error.chain().map(ToString::to_string).collect();
        let route = context.route;
        let mut routes = Vec::new();
        if route.is_none() && response.status_code() == 404 {
            let all = context.core.table.routes();
            routes = all
                .take(ROUTES_MAX)
                .map(|route| RouteLine {
                    methods: &route.methods,
                    pattern: &route.pattern,
                    is_alike: hints::are_alike(&route.pattern, &request.path),
                })
                .collect();
            routes.sort_by_key(|route| !route.is_alike);
        }
        let hint = hints::hint(error, response, route, &routes);
        Self { request, causes, route, hint, routes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown("Authorization", b"Bearer abc"), "(hidden, 10 bytes)");
        assert_eq!(shown("Cookie", b"a=b"), "(hidden, 3 bytes)");
        for name in ["X-CSRF-Token", "X-Api-Key", "X-Auth-Key", "X-Session-Id", "Proxy-Authorization"] {
            assert_eq!(shown(name, b"abc"), "(hidden, 3 bytes)", "{name}");
        }
        assert_eq!(shown("Accept", b"*/*"), "*/*");
        assert_eq!(shown("X-Bytes", b"a\xff"), "a\u{fffd}");
        assert_eq!(shown("X-Long", &[b'a'; 2000]).chars().count(), 1001);
    }
}
