//! Redirects.

use filoplume_runtime::{Response, StatusCode};

use crate::core::error::Result;
use crate::core::response::IntoResponse;
use crate::semantics::uri::encoded;

/// A response that redirects the client to another URL.
///
/// A target that comes from the request can lead to another site (`//evil.example`). Use
/// [`local`](Self::local) for such targets.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().post("/notes", || Redirect::to("/notes"));
/// app.test().post("/notes").send().assert_status(303).assert_header("location", "/notes");
/// ```
///
/// Characters that are not allowed in a URL are percent-encoded: spaces, quotes, backslashes,
/// control characters, and characters outside of ASCII. Text that is already encoded stays, as do
/// characters with a meaning in a URL, such as `/`, `?`, `#` and `&`. Encode a value that may
/// contain these before you insert it into a target.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || Redirect::to("/café menu?day=%C3%A4"));
/// app.test().get("/").send().assert_header("location", "/caf%C3%A9%20menu?day=%C3%A4");
/// ```
#[doc(alias("url_for"))]
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a response does nothing until it is returned"]
pub struct Redirect {
    status: StatusCode,
    target: String,
}

impl Redirect {
    /// Returns a `303`: the client fetches the target with `GET`. It is the usual response to a
    /// form (RFC 9110, 15.4.4).
    pub fn to(target: impl Into<String>) -> Self {
        Self { status: StatusCode::SEE_OTHER, target: target.into() }
    }

    /// Returns a `307`: the client repeats the request at the target. The move is temporary.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .post("/orders", || Redirect::temporary("/v2/orders"))
    ///     .post("/v2/orders", |text: String| text);
    /// app.test().post("/orders").body("tea").follow_redirects(1).send().assert_text("tea");
    /// ```
    pub fn temporary(target: impl Into<String>) -> Self {
        Self { status: StatusCode::TEMPORARY_REDIRECT, target: target.into() }
    }

    /// Returns a `308`: the client repeats the request at the target. The move is permanent.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/blog/{*rest}", |Path(rest): Path<String>| {
    ///     Redirect::permanent(format!("/posts/{rest}"))
    /// });
    /// app.test()
    ///     .get("/blog/a/b")
    ///     .send()
    ///     .assert_status(308)
    ///     .assert_header("location", "/posts/a/b");
    /// ```
    pub fn permanent(target: impl Into<String>) -> Self {
        Self { status: StatusCode::PERMANENT_REDIRECT, target: target.into() }
    }

    /// Returns a `303` to a path of this site, or to `otherwise` if `target` leads to another site.
    /// Use it for parameters such as `?next=..`.
    ///
    /// ```
    /// use filoplume::Redirect;
    ///
    /// assert_eq!(Redirect::local("/notes?page=2", "/"), Redirect::to("/notes?page=2"));
    /// assert_eq!(Redirect::local("//evil.example", "/"), Redirect::to("/"));
    /// assert_eq!(Redirect::local("https://evil.example", "/"), Redirect::to("/"));
    /// ```
    pub fn local(target: &str, otherwise: impl Into<String>) -> Self {
        // Browsers treat `\` like `/`, and ignore tabs and line feeds.
        let is_local = target.starts_with('/')
            && !target[1..].starts_with(['/', '\\'])
            && !target.chars().any(|character| character.is_control() || character == '\\');
        if is_local { Self::to(target) } else { Self::to(otherwise) }
    }
}

impl IntoResponse for Redirect {
    fn into_response(self) -> Result<Response> {
        let mut response = Response::new(self.status.as_u16());
        response.set_header("location", encoded(&self.target).as_bytes())?;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_target_leaves_neither_the_site_nor_its_header() {
        let target_of = |target: &str| Redirect::local(target, "/otherwise").target;
        for local in ["/", "/a", "/a//b?to=https://b.example/#c", "/é", "/:80"] {
            assert_eq!(target_of(local), local);
        }
        for other in [
            "",
            "a",
            "https://b.example/",
            "//b.example",
            "///b.example",
            // Browsers read a backslash as a slash, and leave out tabs and line ends.
            "/\\b.example",
            "\\b.example",
            "/a\\b",
            "/\t/b.example",
            "/\n/b.example",
            "/a\0",
            "/a\u{7f}",
        ] {
            assert_eq!(target_of(other), "/otherwise", "{other:?}");
        }
    }
}
