//! `Option<T>` as a handler parameter.

use filoplume_runtime::Request;

use super::context::Context;
use super::error::Result;
use super::extract::FromRequest;
use super::options::RouteOptions;
use super::takes::Takes;

/// An extractor whose value may be missing, so that `Option<T>` can be a parameter. The parameter
/// is `None` if the value is missing. A value that is present but invalid is rejected like that of
/// `T`.
///
/// ```
/// use filoplume::extract::headers::Referer;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", |referer: Option<Header<Referer>>| match referer {
///     Some(Header(Referer(from))) => format!("you come from {from}"),
///     None => "you come from nowhere".to_owned(),
/// });
/// app.test().get("/").send().assert_text("you come from nowhere");
/// ```
///
/// To treat invalid values as `None` too, extract `Result<T, T::Rejection>` and call `ok()`.
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` cannot be a parameter of a handler",
    label = "not an extractor whose value may be missing",
    note = "`Option` works with `Header<H>`, `Extension<T>`, `Json<T>`, `Form<T>`, `Basic`, \
            `Bearer`, `Claims<T>`, `ClientCertificate`",
    note = "others have the `Option` inside: `State<Option<T>>`, and `Query<T>` or `Path<T>` of \
            a struct with optional fields, `struct Search {{ page: Option<u32> }}`",
    note = "an extractor of your own: take `user: Result<User, E>`, where `E` is its `Rejection`, \
            or write `impl filoplume::extract::ExtractOptional for User`"
)]
pub trait ExtractOptional: FromRequest {
    /// Extracts the value, or returns `None` if it is missing.
    ///
    /// # Errors
    ///
    /// If the value is present but invalid.
    fn extract_optional(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Option<Self>, Self::Rejection>;
}

impl<T: ExtractOptional> FromRequest for Option<T> {
    const TAKES: Takes = T::TAKES;
    type Rejection = T::Rejection;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, T::Rejection> {
        T::extract_optional(request, context)
    }

    fn configure(options: &mut RouteOptions) {
        options.optional(T::configure);
    }
}
