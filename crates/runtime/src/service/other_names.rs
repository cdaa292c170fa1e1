//! What the compiler says about functions that requests and responses of other libraries have.
//!
//! Without the functions here, it says only that there is none of that name. The bounds are for
//! every lifetime, because the compiler would refuse them at once if they depended on nothing.

use crate::service::request::Request;
use crate::service::response::Response;

/// A response that is made by a builder. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `Response` has no builder: call `Response::new(201)`, and then its `set_` methods",
    label = "not a function of this `Response`",
    note = "a handler of an app can return a tuple: `(StatusCode::CREATED, Json(value))`, or \
            `([(\"x-tag\", \"tea\")], text)`"
)]
pub trait MadeByBuilder {}

/// A response that is made from a value. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `Response` is not made by `json`: a handler returns `Json(value)`",
    label = "not a function of this `Response`",
    note = "with another status, it returns `(StatusCode::CREATED, Json(value))`; where a \
            `Response` is needed, call `.into_response()?` on either"
)]
pub trait MadeOfJson {}

/// A request that is asked for its parts. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `Request` has no such method: a handler of an app takes this as a parameter",
    label = "write a parameter in place of this call",
    note = "`Json(note): Json<Note>` is the content, `Path(id): Path<u64>` a capture of the \
            pattern, and `State(database): State<Database>` a state",
    note = "without an app, `request.body_mut()` reads the content"
)]
pub trait AskedForParts {}

impl Response {
    /// Cannot be called: see the message of [`MadeByBuilder`].
    #[doc(hidden)]
    pub fn builder() -> Self
    where
        for<'any> Self: MadeByBuilder,
    {
        Self::default()
    }

    /// Cannot be called: see the message of [`MadeOfJson`].
    #[doc(hidden)]
    pub fn json<T>(_: T) -> Self
    where
        for<'any> Self: MadeOfJson,
    {
        Self::default()
    }
}

impl Request {
    /// Cannot be called: see the message of [`AskedForParts`].
    #[doc(hidden)]
    pub fn json(&self)
    where
        for<'any> Self: AskedForParts,
    {
    }

    /// Cannot be called: see the message of [`AskedForParts`].
    #[doc(hidden)]
    pub fn params(&self, _: &str)
    where
        for<'any> Self: AskedForParts,
    {
    }

    /// Cannot be called: see the message of [`AskedForParts`].
    #[doc(hidden)]
    pub fn state(&self)
    where
        for<'any> Self: AskedForParts,
    {
    }
}
