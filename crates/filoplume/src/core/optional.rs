//! `Option<T>` as a parameter.

use filoplume_runtime::Request;

use super::context::Context;
use super::error::Result;
use super::extract::Extract;
use super::options::RouteOptions;
use super::takes::Takes;

/// An extractor of something that may not be there. `Option<T>` is a parameter then: `None` if it
/// is not there, and refused as `T` is if it is there and wrong.
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
/// To take whatever is wrong as `None`, ask for `Result<T, T::Rejection>`, and its `ok()`.
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` cannot be a parameter of a handler",
    label = "not an extractor of something that may be missing",
    note = "`Option` is possible for `Header<H>`, `Extension<T>`, `Json<T>`, `Form<T>`, `Basic`, \
            `Bearer`, `Claims<T>`",
    note = "in queries and forms the fields are optional: `struct Search {{ page: Option<u32> }}` \
            with `Query<Search>`"
)]
pub trait ExtractOptional: Extract {
    /// Makes the value, or `None` if there is nothing to make it from.
    ///
    /// # Errors
    ///
    /// If it is there and wrong.
    fn extract_optional(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Option<Self>, Self::Rejection>;
}

impl<T: ExtractOptional> Extract for Option<T> {
    const TAKES: Takes = T::TAKES;
    type Rejection = T::Rejection;

    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, T::Rejection> {
        T::extract_optional(request, context)
    }

    fn configure(options: &mut RouteOptions) {
        options.optional(T::configure);
    }
}
