//! Parts of an app that are served on an address of their own: the console and the metrics.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use super::App;
use crate::core::error::Result;
use crate::routing::Router;

/// The servers beside that of the app. It is a trait so that a program contains them only if it has
/// such a part.
pub(crate) trait Beside: fmt::Debug + Send + Sync {
    /// Adds the routes of a part to those at an address. Parts with the same address share it.
    fn add(
        &mut self,
        address: String,
        part: Part,
        path: &str,
        routes: Router,
    ) -> Result<(), String>;

    /// Tells a program that does not let the app bind its addresses what to do.
    fn unbound(&self) -> String;

    /// Gives the parts what their middleware may need of the app.
    fn inherit(&mut self, of_app: &App);

    /// Binds the addresses. `restart` is the control socket of the app, if a new process can take
    /// it over: it then takes over these addresses in the same way.
    fn bind(&mut self, restart: Option<&Path>) -> Result<()>;

    fn start(&mut self) -> Result<()>;

    /// Ends the feed of those who still look, and waits until they have been told.
    fn end(&mut self);

    /// Returns the address of a part, once it is bound.
    fn addr_of(&self, part: Part) -> Option<SocketAddr>;
}

/// What can have an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    #[cfg(feature = "console")]
    Console,
    Metrics,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "console")]
            Self::Console => "console",
            Self::Metrics => "metrics",
        }
    }

    /// Returns what a program writes that has no such address.
    pub(crate) fn instead(self) -> &'static str {
        match self {
            #[cfg(feature = "console")]
            Self::Console => "leave `Console::address` out",
            Self::Metrics => "use `App::metrics` in place of `App::metrics_on`",
        }
    }
}
