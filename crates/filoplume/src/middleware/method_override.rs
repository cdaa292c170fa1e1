//! Other methods than `POST` for clients that can send no others, such as HTML forms.

use std::sync::Arc;

use filoplume_runtime::{Body, Method, Plan, Request, Response, StatusCode};

use crate::core::app_router::AppRouter;
use crate::core::changed_method::{PlannedMethod, PlannedPermits, PlansMethod};
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
///
/// A request that is changed by its header or its query gets what its new route asks for before it
/// is called, as if the client had sent that method: its
/// [permits](crate::Route::uses), its limit for the content, a thread of the pool. The method in a
/// form is known only when the form has arrived. So all forms of these `POST`s are collected before
/// a thread is used. Such a request has the permit of its route for `POST`. If that route uses
/// none, the request takes the permit of the first of the other routes at its path that uses one,
/// whichever it will lead to. If its new route uses other permits, it waits for one with its
/// thread, for 2 seconds, and is otherwise answered with `503`.
///
/// Your own middleware of an app can change the method by
/// [`set_method`](crate::Request::set_method), by any rule. The request then has what the route of
/// its first method asks for, or nothing if that method has no route. Only a permit is taken later,
/// in the same way, and the limit for the content applies. This permit counts for no client. The
/// [memory](crate::Request::hold_memory) of what the content becomes is not counted, and a slow
/// content holds a thread.
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
        if let Some(method) = self.method_in_head(request) {
            return Ok(Some(method));
        }
        let Some(field) = &self.field else { return Ok(None) };
        // Replacing the rest of a content would hide from extractors that its beginning was read.
        if !self.reads_form(request) || request.content_was_read() {
            return Ok(None);
        }
        let form = std::mem::take(request.body_mut()).into_bytes(self.form_bytes_max);
        let form =
            form.map_err(|error| reject(ContentRejection::of_read(error, self.form_bytes_max)))?;
        let method = field_of(&form, field);
        *request.body_mut() = Body::from(Vec::from(form));
        Ok(method)
    }

    /// Returns the method that the header or the query asks for.
    fn method_in_head(&self, request: &Request) -> Option<String> {
        let header = self.header.as_ref().and_then(|name| request.headers().get(name));
        if let Some(method) = header {
            return Some(String::from_utf8_lossy(method).into_owned());
        }
        let (query, field) = (request.query()?, self.field.as_ref()?);
        field_of(query.as_bytes(), field)
    }

    /// Returns whether the content is a form that is searched.
    fn reads_form(&self, request: &Request) -> bool {
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
        if let Some(requested) = self.requested_method(&mut request)? {
            match self.allowed_method(&requested) {
                Some(method) => request.set_method(method.clone()),
                None if requested.eq_ignore_ascii_case("POST") => {}
                None => return Err(self.refuse(&requested)),
            }
        }
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.plan_method(Arc::new(self.clone()));
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

impl PlansMethod for MethodOverride {
    fn plan(&self, request: &mut Request, plan: Plan, router: &dyn AppRouter) -> Plan {
        let is_planned = request.extensions().get::<PlannedMethod>().is_some();
        if *request.method() != Method::POST || is_planned {
            return plan;
        }
        if let Some(requested) = self.method_in_head(request) {
            let Some(method) = self.allowed_method(&requested) else { return plan };
            let Some((number, options)) = router.route_of(method, request.path()) else {
                return plan;
            };
            request.extensions_mut().insert(PlannedMethod(method.clone()));
            return options.plan(request, number);
        }
        if self.field.is_none() || request.content_length() == Some(0) || !self.reads_form(request)
        {
            return plan;
        }
        self.plan_form(request, plan, router)
    }
}

impl MethodOverride {
    /// Returns the plan for a form that may ask for a method. It is collected before a thread reads
    /// it. The request gets the permit of the first route that it may lead to.
    fn plan_form(&self, request: &mut Request, plan: Plan, router: &dyn AppRouter) -> Plan {
        let plan = plan.buffered().buffered_content_bytes_max(self.form_bytes_max).holds_memory();
        let permits = |method| router.route_of(method, request.path())?.1.permits();
        if permits(&Method::POST).is_some() {
            return plan;
        }
        let Some(permits) = self.methods.iter().find_map(permits) else { return plan };
        request.extensions_mut().insert(PlannedPermits(permits.clone()));
        plan.uses(permits)
    }

    /// Returns the method with this name in any case, if a `POST` can become it.
    fn allowed_method(&self, name: &str) -> Option<&Method> {
        self.methods.iter().find(|method| method.as_str().eq_ignore_ascii_case(name))
    }

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
