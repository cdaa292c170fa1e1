//! Parts of an app that are served on an address of their own: the console, the health checks and
//! the metrics.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use super::App;
use crate::core::error::Result;
use crate::routing::Router;

/// The servers of these parts, beside the server of the app. It is a trait so that a program
/// contains their code only if it has such a part.
pub(crate) trait Beside: fmt::Debug + Send + Sync {
    /// Adds the routes of a part to those at an address. Parts with the same address share it.
    fn add(
        &mut self,
        address: String,
        part: Part,
        path: &str,
        routes: Router,
    ) -> Result<(), String>;

    /// Returns the error message for a program that does not let the app bind its addresses.
    fn unbound(&self) -> String;

    /// Copies from the app what the middleware of the parts may need: states and trusted proxies.
    fn inherit(&mut self, of_app: &App);

    /// Binds the addresses. `restart` is the control socket of the app, if a new process can take
    /// over the app: it then takes over these addresses in the same way.
    fn bind(&mut self, restart: Option<&Path>) -> Result<()>;

    fn start(&mut self) -> Result<()>;

    /// Shuts the servers down, and waits until viewers of the console know that its feed has ended.
    fn end(&mut self);

    /// Returns the address of a part, once it is bound.
    fn addr_of(&self, part: Part) -> Option<SocketAddr>;
}

/// A part of an app that can have an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    #[cfg(feature = "console")]
    Console,
    Health,
    Metrics,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "console")]
            Self::Console => "console",
            Self::Health => "probes",
            Self::Metrics => "metrics",
        }
    }

    /// Returns what a program can write so that the part needs no address of its own.
    pub(crate) fn instead(self) -> &'static str {
        match self {
            #[cfg(feature = "console")]
            Self::Console => "leave `Console::address` out",
            Self::Health => "leave `Health::address` out",
            Self::Metrics => "use `App::metrics` in place of `App::metrics_on`",
        }
    }
}
