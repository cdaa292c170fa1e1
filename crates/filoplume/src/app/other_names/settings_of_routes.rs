//! What the compiler says about settings of a route that are written behind it, on the app or the
//! router, as in `.get("/report", report).on_pool()`.
//!
//! Without the methods here, it says only that there is none of that name. The bounds are for every
//! lifetime, because the compiler would refuse them at once if they depended on nothing.

use crate::app::App;
use crate::routing::Router;

/// A type with the settings of one route. No type implements it.
#[diagnostic::on_unimplemented(
    message = "settings of a route belong to the route: `.route(\"/report\", \
               get(report).on_pool())`",
    label = "an app or a router has many routes: move this into the parentheses of `.route(..)`",
    note = "`get`, `post` and the like are in `filoplume::prelude`, and `on` for other methods in \
            `filoplume::routing`"
)]
pub trait OneRoute {}

macro_rules! settings_of_routes {
    ($type:ident) => {
        impl $type {
            settings_of_routes!(on_loop() on_pool() spooled() vital());
            settings_of_routes!(uses(T) content_bytes_max(T));
        }
    };
    ($($name:ident($($value:ident)?))+) => {
        $(
            /// Cannot be called: see the message of [`OneRoute`].
            #[doc(hidden)]
            pub fn $name$(<$value>)?(self $(, _: $value)?) -> Self
            where
                for<'any> Self: OneRoute,
            {
                self
            }
        )+
    };
}

settings_of_routes!(App);
settings_of_routes!(Router);
