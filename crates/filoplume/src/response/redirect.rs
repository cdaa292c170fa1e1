//! Redirects.

use filoplume_runtime::{Response, StatusCode};

use crate::core::error::Result;
use crate::core::response::IntoResponse;
use crate::semantics::uri::encoded;

/// An answer that sends the client elsewhere.
///
/// A target that comes from the request can lead to another site (`//evil.example`): use
/// [`local`](Self::local) for those.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().post("/notes", || Redirect::to("/notes"));
/// app.test().post("/notes").send().assert_status(303).assert_header("location", "/notes");
/// ```
///
/// What a URL cannot hold is sent percent-encoded: spaces, quotes, backslashes, controls, and
/// characters outside of ASCII. What is encoded already stays, and so does what has a meaning in a
/// URL, such as `/`, `?`, `#` and `&`: a value that may contain these is encoded before it is put
/// into a target.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || Redirect::to("/café menu?day=%C3%A4"));
/// app.test().get("/").send().assert_header("location", "/caf%C3%A9%20menu?day=%C3%A4");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    status: StatusCode,
    target: String,
}

impl Redirect {
    /// Returns a `303`: the answer is found there with `GET`. What to answer to a form that was
    /// sent (RFC 9110, 15.4.4).
    pub fn to(target: impl Into<String>) -> Self {
        Self { status: StatusCode::SEE_OTHER, target: target.into() }
    }

    /// Returns a `307`: for now it is there, to be asked in the same way.
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

    /// Returns a `308`: it is there for good, to be asked in the same way.
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

    /// Returns a `303` to a path of this site, or to `otherwise` if `target` leads elsewhere. For a
    /// `?next=..`.
    ///
    /// ```
    /// use filoplume::Redirect;
    ///
    /// assert_eq!(Redirect::local("/notes?page=2", "/"), Redirect::to("/notes?page=2"));
    /// assert_eq!(Redirect::local("//evil.example", "/"), Redirect::to("/"));
    /// assert_eq!(Redirect::local("https://evil.example", "/"), Redirect::to("/"));
    /// ```
    pub fn local(target: &str, otherwise: impl Into<String>) -> Self {
        // Browsers take `\` for `/`, and leave tabs and line ends out.
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
