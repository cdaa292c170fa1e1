//! Routes: which handler answers which method and path.

mod build;
mod guards;
mod listening_router;
mod pattern;
mod prefix;
mod route;
mod router;
mod routes;
mod table;

pub use crate::core::options::RouteOptions;
pub(crate) use build::build;
#[cfg(test)]
pub(crate) use pattern::Pattern;
#[cfg(feature = "static-files")]
pub(crate) use pattern::check_prefix;
pub use route::{Route, any, delete, get, head, on, options, patch, post, put};
pub use router::Router;
pub use routes::{RouteInfo, Routes};
pub(crate) use table::{Found, NO_ROUTE, Table};
