//! Permits for all routes of a router or an app.

use filoplume_runtime::{Permits, Request, Response};

use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;

/// Makes every route below it [use](crate::Route::uses) the permits.
impl Middleware for Permits {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.uses(self);
    }
}
