//! What the compiler says if a router is served in place of an app.
//!
//! Without the method here, it says only that a router has no method `listen`.

use super::router::Router;
use crate::core::error::Result;

/// An address for a router. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `Router` cannot listen: add it to an app, `App::new().merge(router).listen(..)`",
    label = "only an `App` listens",
    note = "`App::new().nest(\"/users\", router)` adds its routes below a prefix"
)]
pub trait AddressOfRouter {}

impl Router {
    /// Cannot be called: see the message of [`AddressOfRouter`].
    #[doc(hidden)]
    #[allow(clippy::missing_errors_doc, reason = "it cannot be called")]
    pub fn listen<A: AddressOfRouter>(self, _: A) -> Result<()> {
        Ok(())
    }
}
