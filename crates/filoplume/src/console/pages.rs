//! The routes of the console: the page, its parts, and the feed.

use std::sync::Arc;

use bytes::Bytes;
use filoplume_runtime::{Response, StatusCode};

use super::feed::{Feed, VIEWERS_MAX};
use crate::core::error::Result;
use crate::core::response::IntoResponse;
use crate::extract::Path;
use crate::middleware::SecurityHeaders;
use crate::observe::NoFailure;
use crate::response::Html;
use crate::routing::{Router, get};
use crate::semantics::uri::encoded;

const PAGE: &str = include_str!("page.html");

/// The parts of the page: name, media type, content.
const PARTS: [(&str, &str, &str); 4] = [
    ("console.css", "text/css; charset=utf-8", include_str!("console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("console.js")),
    ("numbers.js", "text/javascript; charset=utf-8", include_str!("numbers.js")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// The folder of the parts, as the page names it.
const FOLDER: &str = "{folder}";

/// Nothing is loaded from elsewhere, nothing is inline, and texts cannot become markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// Returns the routes, without a prefix.
#[track_caller]
pub(super) fn routes(prefix: &str, feed: Arc<Feed>) -> Router {
    let page = Bytes::from(PAGE.replace(FOLDER, &folder(prefix)));
    let headers = SecurityHeaders::new()
        .content_security_policy(POLICY)
        .set("referrer-policy", "no-referrer")
        .set("cache-control", "no-store");
    Router::new()
        // Added outside of the middleware that decides who may see the console, so that refusals
        // have these headers too.
        .with(headers)
        // The page must be available when all threads are busy, because it is needed then.
        .route("/", get(move || Html(page.clone())).vital())
        // Making a snapshot takes a millisecond with many routes, which no loop should spend.
        .route("/events", get(move || events(&feed)).on_pool().vital())
        .route("/{part}", get(|Path(name): Path<String>| part_response(&name)).vital())
}

/// Adds a viewer. A viewer for whom there is no room gets a `503`, and tries again any number of
/// times. That is no failure of the app, so it is not logged as one.
fn events(feed: &Arc<Feed>) -> Result<Response> {
    if let Some(stream) = feed.subscribe()? {
        return stream.into_response();
    }
    tracing::debug!(viewers = VIEWERS_MAX, "a viewer of the console is refused");
    let mut response = Response::new(StatusCode::SERVICE_UNAVAILABLE);
    response.set_bytes(Bytes::from(format!(
        "{VIEWERS_MAX} viewers look at the console already: close one of their pages\n"
    )));
    response.set_header("content-type", "text/plain; charset=utf-8")?;
    response.set_header("retry-after", "5")?;
    response.extensions_mut().insert(NoFailure);
    Ok(response)
}

/// Returns the folder of the parts relative to the page, so that a proxy may serve the page below
/// another path. It has no character that is special in HTML.
fn folder(prefix: &str) -> String {
    let name = prefix.rsplit('/').next().unwrap_or_default();
    // Without `&` it has no character reference, and without `'` it ends no attribute. Because of
    // `./`, a colon in the name does not make a scheme of it.
    format!("./{}/", encoded(name)).replace('&', "%26").replace('\'', "%27")
}

fn part_response(name: &str) -> Option<Response> {
    let (_, media_type, content) = PARTS.iter().find(|(part, ..)| *part == name)?;
    let mut response = Response::new(StatusCode::OK);
    response.set_bytes(Bytes::from_static(content.as_bytes()));
    // The name and the value are valid.
    let _ = response.set_header("content-type", media_type);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_last_segment_of_the_prefix() {
        for (prefix, expected) in [
            ("/console", "./console/"),
            ("/admin/console", "./console/"),
            ("/a b\"<", "./a%20b%22%3C/"),
            ("/x&lt;", "./x%26lt;/"),
            ("/javascript:alert(1)", "./javascript:alert(1)/"),
        ] {
            assert_eq!(folder(prefix), expected, "{prefix}");
        }
    }

    #[test]
    fn the_page_has_its_own_parts_and_no_others() {
        let page = PAGE.replace(FOLDER, "./console/");
        for (name, ..) in PARTS {
            assert!(page.contains(&format!("\"./console/{name}\"")), "{name}");
        }
        let all = PARTS.iter().map(|(.., content)| *content).chain([&*page]);
        for content in all {
            let content = content.replace("http://www.w3.org/2000/svg", "");
            for elsewhere in ["http:", "https:", "\"//", "@import", "url(", "innerHTML"] {
                assert!(!content.contains(elsewhere), "{elsewhere}");
            }
        }
    }
}
