//! Other methods than `POST` for clients that have only that one, such as HTML forms.

use filoplume_runtime::{Body, Method, Request, Response, StatusCode};

use crate::core::error::{Error, Result};
use crate::core::extract::refuse;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::{CONTENT_BYTES_MAX, RouteOptions};
use crate::extract::ContentRejection;

/// Takes a `POST` for a `PUT`, `PATCH` or `DELETE` if it says so: in `x-http-method-override`, or
/// as `_method` in the query or in a form.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .delete("/notes/{id}", |Path(id): Path<u32>| format!("note {id} is gone"))
///     .with(middleware::MethodOverride::new());
/// let client = app.test();
/// client.post("/notes/3").header("x-http-method-override", "DELETE").send().assert_text("note 3 is gone");
///
/// // <form method="post" action="/notes/3"> <input type="hidden" name="_method" value="DELETE"> ...
/// let form = client.post("/notes/3").header("content-type", "application/x-www-form-urlencoded");
/// form.body("_method=DELETE").send().assert_text("note 3 is gone");
/// ```
///
/// The route is chosen by the new method, so this is middleware of the app; in a router or a route
/// it is too late, and the request is answered as the `POST` it came as. The header counts first,
/// then the query, then the form. No other method can be asked for, and nothing but a `POST` asks:
/// a link or an image changes nothing. What is asked for and cannot be is a `400`.
///
/// A page of another site can send such a form, while its scripts would need a permission for a
/// `DELETE` (see [`Cors`](super::Cors)). So what is asked for in this way is to be protected as a
/// `POST` is: with tokens against forged requests, not by its method.
///
/// A form is read into memory for that, if it is `application/x-www-form-urlencoded`; the handler
/// reads it as if nothing had happened. One that is announced to be longer than [the
/// bound](Self::form_bytes_max) is not looked at; one that turns out to be longer is a `413`.
#[derive(Clone, Debug)]
pub struct MethodOverride {
    methods: Vec<Method>,
    header: Option<String>,
    field: Option<String>,
    form_bytes_max: u64,
}

impl MethodOverride {
    /// Returns middleware that looks for a header, in the query, and in forms.
    pub fn new() -> Self {
        Self {
            methods: vec![Method::PUT, Method::PATCH, Method::DELETE],
            header: Some("x-http-method-override".to_owned()),
            field: Some("_method".to_owned()),
            form_bytes_max: CONTENT_BYTES_MAX,
        }
    }

    /// Sets which of `PUT`, `PATCH` and `DELETE` can be asked for; others are left out.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let allowed = [Method::PUT, Method::PATCH, Method::DELETE];
        self.methods = methods.into_iter().filter(|method| allowed.contains(method)).collect();
        self
    }

    /// Sets the name of the header; `None`: it does not count.
    #[must_use]
    pub fn header(mut self, name: Option<&str>) -> Self {
        self.header = name.map(str::to_owned);
        self
    }

    /// Sets the name of the field in queries and forms; `None`: they are not looked at. Default:
    /// `_method`.
    #[must_use]
    pub fn field(mut self, name: Option<&str>) -> Self {
        self.field = name.map(str::to_owned);
        self
    }

    /// Sets how long a form may be to be looked at, in bytes. Default: 2 MiB.
    #[must_use]
    pub fn form_bytes_max(mut self, bytes: u64) -> Self {
        self.form_bytes_max = bytes;
        self
    }

    /// What the request asks to be taken for.
    fn asked(&self, request: &mut Request) -> Result<Option<String>> {
        let header = self.header.as_ref().and_then(|name| request.headers().get(name));
        if let Some(method) = header {
            return Ok(Some(String::from_utf8_lossy(method).into_owned()));
        }
        let Some(field) = &self.field else { return Ok(None) };
        if let Some(method) = request.query().and_then(|query| field_of(query.as_bytes(), field)) {
            return Ok(Some(method));
        }
        if !self.looks_into(request) {
            return Ok(None);
        }
        let form = std::mem::take(request.body_mut()).into_bytes(self.form_bytes_max);
        let form =
            form.map_err(|error| refuse(ContentRejection::of_read(error, self.form_bytes_max)))?;
        let method = field_of(&form, field);
        *request.body_mut() = Body::from(Vec::from(form));
        Ok(method)
    }

    fn looks_into(&self, request: &Request) -> bool {
        let content_type = request.header("content-type").unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
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
        if let Some(asked) = self.asked(&mut request)? {
            let method =
                self.methods.iter().find(|method| method.as_str().eq_ignore_ascii_case(&asked));
            match method {
                Some(method) => request.set_method(method.clone()),
                None if asked.eq_ignore_ascii_case("POST") => {}
                None => return Err(self.refuse(&asked)),
            }
        }
        Ok(next.run(request))
    }

    // It puts nothing beside requests.
    fn configure(&self, _: &mut RouteOptions) {}
}

impl MethodOverride {
    fn refuse(&self, asked: &str) -> Error {
        let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
        let asked: String = asked.chars().take(20).collect();
        let methods = methods.join(", ");
        Error::new(
            StatusCode::BAD_REQUEST,
            format!(
                "a POST cannot be taken for `{}`, only for one of: {methods}",
                asked.escape_debug()
            ),
        )
    }
}

/// The first value of a field, decoded.
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
    fn the_field_is_found_wherever_it_stands() {
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
        assert_eq!(field_of(b"\xff=\xfe&_method=%ff", "_method").as_deref(), Some("\u{fffd}"));
    }
}
