//! Other methods than `POST` for clients that can send no others, such as HTML forms.

use filoplume_runtime::{Body, Method, Request, Response, StatusCode};

use crate::core::error::{Error, Result};
use crate::core::extract::reject;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::{CONTENT_BYTES_MAX, RouteOptions};
use crate::extract::ContentRejection;

/// Treats a `POST` as a `PUT`, `PATCH` or `DELETE` if it asks for that, in
/// `x-http-method-override`, or as `_method` in the query or in a form.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .delete("/notes/{id}", |Path(id): Path<u32>| format!("note {id} is deleted"))
///     .with(middleware::MethodOverride::new());
/// let client = app.test();
/// let request = client.post("/notes/3").header("x-http-method-override", "DELETE");
/// request.send().assert_text("note 3 is deleted");
///
/// // <form method="post" action="/notes/3">
/// //   <input type="hidden" name="_method" value="DELETE"> ...
/// let form = client.post("/notes/3").header("content-type", "application/x-www-form-urlencoded");
/// form.body("_method=DELETE").send().assert_text("note 3 is deleted");
/// ```
///
/// The new method determines the route, so add this middleware to the app. In a router or a route
/// it comes too late, so an app with it there does not start. The header takes precedence over the
/// query, and the query over the form. Only a `POST` can be changed, so a link or an image cannot
/// change anything. A request for any other method is a `400`.
///
/// A page of another site can send such a form, while its scripts would need permission for a
/// `DELETE` (see [`Cors`](super::Cors)). So the method does not protect these routes. Protect them
/// like a `POST`, with CSRF tokens.
///
/// A form is read into memory if it is `application/x-www-form-urlencoded`; the handler can read it
/// as usual. A form that announces more than [the limit](Self::form_bytes_max) is not searched. A
/// form without a length that passes the limit is a `413`.
#[derive(Clone, Debug)]
pub struct MethodOverride {
    methods: Vec<Method>,
    header: Option<String>,
    field: Option<String>,
    form_bytes_max: u64,
}

impl MethodOverride {
    /// Returns middleware that searches a header, the query, and forms.
    pub fn new() -> Self {
        Self {
            methods: vec![Method::PUT, Method::PATCH, Method::DELETE],
            header: Some("x-http-method-override".to_owned()),
            field: Some("_method".to_owned()),
            form_bytes_max: CONTENT_BYTES_MAX,
        }
    }

    /// Sets which of `PUT`, `PATCH` and `DELETE` are allowed; other methods are ignored.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let allowed = [Method::PUT, Method::PATCH, Method::DELETE];
        self.methods = methods.into_iter().filter(|method| allowed.contains(method)).collect();
        self
    }

    /// Sets the name of the header; with `None`, no header is read. An app with an invalid name
    /// does not start.
    #[must_use]
    pub fn header(mut self, name: Option<&str>) -> Self {
        self.header = name.map(str::to_owned);
        self
    }

    /// Sets the name of the field in queries and forms; with `None`, they are not searched.
    /// Default: `_method`.
    #[must_use]
    pub fn field(mut self, name: Option<&str>) -> Self {
        self.field = name.map(str::to_owned);
        self
    }

    /// Sets the longest form that is searched, in bytes. Default: 2 MiB.
    #[must_use]
    pub fn form_bytes_max(mut self, bytes: u64) -> Self {
        self.form_bytes_max = bytes;
        self
    }

    /// Returns the method that the request asks for.
    fn requested_method(&self, request: &mut Request) -> Result<Option<String>> {
        let header = self.header.as_ref().and_then(|name| request.headers().get(name));
        if let Some(method) = header {
            return Ok(Some(String::from_utf8_lossy(method).into_owned()));
        }
        let Some(field) = &self.field else { return Ok(None) };
        if let Some(method) = request.query().and_then(|query| field_of(query.as_bytes(), field)) {
            return Ok(Some(method));
        }
        if !self.reads_form(request) {
            return Ok(None);
        }
        let form = std::mem::take(request.body_mut()).into_bytes(self.form_bytes_max);
        let form =
            form.map_err(|error| reject(ContentRejection::of_read(error, self.form_bytes_max)))?;
        let method = field_of(&form, field);
        *request.body_mut() = Body::from(Vec::from(form));
        Ok(method)
    }

    fn reads_form(&self, request: &Request) -> bool {
        let content_type = request.header("content-type").unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
            // Replacing the rest of a content would hide from extractors that its beginning was
            // read.
            && !request.content_was_read()
            && request.content_length().is_none_or(|length| length <= self.form_bytes_max)
    }
}

impl Default for MethodOverride {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for MethodOverride {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        if *request.method() != Method::POST {
            return Ok(next.run(request));
        }
        if let Some(requested) = self.requested_method(&mut request)? {
            let method =
                self.methods.iter().find(|method| method.as_str().eq_ignore_ascii_case(&requested));
            match method {
                Some(method) => request.set_method(method.clone()),
                None if requested.eq_ignore_ascii_case("POST") => {}
                None => return Err(self.refuse(&requested)),
            }
        }
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        if !options.is_of_app() {
            options.mistake(
                "MethodOverride: in a router or a route it comes too late, because the method \
                 determines the route: add it to the app",
            );
        }
        if let Some(name) = &self.header {
            if http::HeaderName::try_from(name).is_err() {
                options.mistake(format!(
                    "MethodOverride: `{}` is not a header name",
                    name.escape_debug()
                ));
            }
        }
    }
}

impl MethodOverride {
    fn refuse(&self, requested: &str) -> Error {
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        let requested: String = requested.chars().take(20).collect();
        let methods = methods.join(", ");
        Error::new(
            StatusCode::BAD_REQUEST,
            format!(
                "a POST cannot be treated as `{}`, only as one of: {methods}",
                requested.escape_debug()
            ),
        )
    }
}

/// Returns the first value of a field, decoded.
fn field_of(form: &[u8], name: &str) -> Option<String> {
    form.split(|&byte| byte == b'&').find_map(|pair| {
        let (key, value) = match pair.iter().position(|&byte| byte == b'=') {
            Some(at) => (pair.get(..at)?, pair.get(at + 1..)?),
            None => (pair, [].as_slice()),
        };
        (decode(key) == name).then(|| decode(value))
    })
}

fn decode(bytes: &[u8]) -> String {
    let spaced: Vec<u8> =
        bytes.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_encoding::percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_found_at_any_position() {
        for (form, expected) in [
            ("_method=PUT", Some("PUT")),
            ("a=b&_method=PUT&_method=DELETE", Some("PUT")),
            ("a=b&%5Fmethod=%50UT&", Some("PUT")),
            ("_method", Some("")),
            ("_method=a=b", Some("a=b")),
            ("x_method=PUT&a=_method=PUT", None),
            ("", None),
            ("&&==&%", None),
        ] {
            assert_eq!(field_of(form.as_bytes(), "_method").as_deref(), expected, "{form}");
        }
        assert_eq!(field_of(b"my+method=a+b", "my method").as_deref(), Some("a b"));
        assert_eq!(field_of(b"\xff=\xfe&_method=%ff", "_method").as_deref(), Some("\u{fffd}"));
    }
}
