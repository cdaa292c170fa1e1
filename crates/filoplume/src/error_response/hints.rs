//! Hints: what a developer can do about an error.

use std::io;

use filoplume_runtime::{Response, StatusCode};

use crate::core::engine_refusal::EngineRefusal;
use crate::core::error::Error;
use crate::core::panics::Panicked;
use crate::core::route::CompiledRoute;
use crate::extract::ExtensionRejection;

/// A route of the app that is listed because none matched.
pub(super) struct RouteLine<'a> {
    pub(super) methods: &'a str,
    pub(super) pattern: &'a str,
    pub(super) is_similar: bool,
}

/// Returns a hint, if there is one for this error.
pub(super) fn hint(
    error: &Error,
    response: &Response,
    route: Option<&CompiledRoute>,
    routes: &[RouteLine<'_>],
) -> Option<String> {
    let hint = match response.status() {
        // The fallback of a router is a route too, but no path was written for it.
        StatusCode::NOT_FOUND if route.is_none_or(CompiledRoute::is_fallback) => {
            return Some(not_found(routes));
        }
        StatusCode::NOT_FOUND => {
            "The route matched; its handler or middleware returned a 404.".to_owned()
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = response.headers().get_str("allow").unwrap_or("no method");
            format!("The path has routes for other methods: {allow}.")
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "The client must set `Content-Type`. The test \
                                               client's `json`, `form` and `multipart` do this, \
                                               and so do `curl --json`, `curl -d` for a form and \
                                               `curl -F` for a form with files."
            .to_owned(),
        StatusCode::PAYLOAD_TOO_LARGE => "The content is longer than the route allows. Raise the \
                                          maximum with `Route::content_bytes_max`, or read the \
                                          content as `Body`, which is not buffered. The fields of \
                                          a form have limits of their own: `MultipartLimits`."
            .to_owned(),
        StatusCode::INTERNAL_SERVER_ERROR => return internal(error),
        StatusCode::SERVICE_UNAVAILABLE => error.downcast_ref::<EngineRefusal>()?.hint().to_owned(),
        _ => return None,
    };
    Some(hint)
}

fn not_found(routes: &[RouteLine<'_>]) -> String {
    let alike: Vec<_> = routes.iter().filter(|route| route.is_similar).collect();
    match alike.as_slice() {
        [] if routes.is_empty() => {
            "The app has no routes yet: add one with `.get(\"/\", || \"Hello!\")`.".to_owned()
        }
        [] => "No route matches the path.".to_owned(),
        alike => {
            let names: Vec<_> = alike
                .iter()
                .take(3)
                .map(|route| format!("{} {}", route.methods, route.pattern))
                .collect();
            format!("No route matches the path. Did you mean {}?", names.join(" or "))
        }
    }
}

fn internal(error: &Error) -> Option<String> {
    if let Some(advice) = error.lost_response_advice() {
        return Some(advice + ".");
    }
    if error.downcast_ref::<Panicked>().is_some() {
        return Some(
            "A panic is a bug in the program. Return expected errors as a `Result`, with \
             `?`."
                .to_owned(),
        );
    }
    if error.downcast_ref::<ExtensionRejection>().is_some() {
        return Some(
            "`Extension` reads a value that middleware adds. Add that middleware with `.with(..)` \
             to the app, the router or the route, before the middleware that reads the value."
                .to_owned(),
        );
    }
    if let Some(hint) = error.hint() {
        return Some(hint.to_owned());
    }
    let io_error = error.downcast_ref::<io::Error>();
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let folder =
            std::env::current_dir().map(|folder| folder.display().to_string()).unwrap_or_default();
        return Some(format!(
            "A file is missing. Relative paths start at the working directory, {folder}."
        ));
    }
    error.source().map(|_| {
        "`?` converted this error. Choose its response for all handlers with `App::map_error`, \
         or in this handler with `Error::new`."
            .to_owned()
    })
}

/// The maximum length of texts that are compared: the time grows with the product of their lengths.
const COMPARED_BYTES_MAX: usize = 200;

/// Returns whether a path may be a misspelling of a pattern: a few letters differ, or a prefix is
/// missing.
pub(super) fn are_similar(pattern: &str, path: &str) -> bool {
    if pattern.len() > COMPARED_BYTES_MAX || path.len() > COMPARED_BYTES_MAX {
        return false;
    }
    let (pattern, path) = (pattern.trim_end_matches('/'), path.trim_end_matches('/'));
    if path.len() > 1 && pattern.ends_with(path) {
        return true;
    }
    let (patterns, paths): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), path.split('/').collect());
    if patterns.len() != paths.len() {
        return false;
    }
    let mut differences = 0;
    let mut same_letters = 0;
    for (pattern, segment) in patterns.iter().zip(&paths) {
        if pattern.contains('{') {
            differences += usize::from(segment.is_empty());
            continue;
        }
        let distance = distance(&pattern.to_lowercase(), &segment.to_lowercase());
        differences += distance;
        same_letters += pattern.len().saturating_sub(distance);
    }
    // Some letters must be equal. Otherwise a short path would resemble every other path.
    differences <= 3 && same_letters > differences
}

/// Returns how many letters must be inserted, removed or replaced (Levenshtein distance).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, left) in left.chars().enumerate() {
        let mut diagonal = at;
        row[0] = at + 1;
        for (at, &right) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_few_differences_is_similar() {
        assert!(are_similar("/users/{id}", "/user/17"));
        assert!(are_similar("/users", "/Users"));
        assert!(are_similar("/api/users", "/users"));
        assert!(are_similar("/about", "/abuot"));
        assert!(!are_similar("/about", "/users"));
        assert!(!are_similar("/a", "/b"));
        assert!(!are_similar("/users/{id}", "/users"));
        assert!(!are_similar("/", "/nowhere"));
    }

    #[test]
    fn distances_are_counted_in_letters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("größe", "große"), 1);
    }
}
