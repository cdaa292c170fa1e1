//! What the compiler says about methods that apps of other frameworks have.
//!
//! Without the methods here, it says only that there is none of that name. The bounds are for every
//! lifetime, because the compiler would refuse them at once if they depended on nothing.

mod settings_of_routes;

use super::App;
use crate::core::error::Result;
use crate::routing::Router;

/// An app or router that is put into layers. No type implements it.
#[diagnostic::on_unimplemented(
    message = "middleware is added by `.with(..)`: `.with(middleware::Logger::new())`",
    label = "write `.with(..)` in place of this method",
    note = "middleware is of this framework, or a `fn(Request, Next) -> Result<Response>`; layers \
            of tower and the middleware of other frameworks do not fit"
)]
pub trait Layered {}

/// An app that is served by a server of its own. No type implements it.
#[diagnostic::on_unimplemented(
    message = "an `App` binds an address and serves it by `.listen(\"127.0.0.1:5000\")`",
    label = "write `.listen(..)` in place of this method",
    note = "`.start(..)` serves in the background, and `.listen_on(..)` several addresses"
)]
pub trait ServedByServer {}

macro_rules! layered {
    ($type:ty: $($name:ident)*) => {
        impl $type {
            $(
                /// Cannot be called: see the message of [`Layered`].
                #[doc(hidden)]
                pub fn $name<L>(self, _: L) -> Self
                where
                    for<'any> Self: Layered,
                {
                    self
                }
            )*
        }
    };
}

layered!(App: layer wrap);
layered!(Router: layer wrap);

impl App {
    /// Cannot be called: see the message of [`ServedByServer`].
    #[doc(hidden)]
    #[allow(clippy::missing_errors_doc, reason = "it cannot be called")]
    pub fn serve<A>(self, _: A) -> Result<()>
    where
        for<'any> Self: ServedByServer,
    {
        Ok(())
    }

    /// Cannot be called: see the message of [`ServedByServer`].
    #[doc(hidden)]
    #[allow(clippy::missing_errors_doc, reason = "it cannot be called")]
    pub fn bind<A>(self, _: A) -> Result<()>
    where
        for<'any> Self: ServedByServer,
    {
        Ok(())
    }
}
