//! A console on an address of its own: a second server, which ends after the app.

use std::net::SocketAddr;
use std::time::Duration;

use filoplume_runtime::ServerConfig;

use super::{AppService, Bound, Listen, bind, log_address, start_up};
use crate::app::{App, OwnConsole};
use crate::core::error::{Error, Result};

/// How long viewers may take to get the end of the feed when the app has ended.
const DRAIN: Duration = Duration::from_secs(1);

/// Connections of the console. A browser opens a few, and viewers that are refused one each.
const CONNECTIONS_MAX: usize = 64;

/// Threads that check who may see it and make the first snapshots.
const THREADS_MAX: usize = 4;

/// A console that is bound and not served yet.
#[derive(Debug)]
pub(super) struct BoundConsole {
    bound: Bound,
    service: AppService,
    prefix: String,
}

/// A console that is served until this is dropped.
#[derive(Debug)]
pub(super) struct RunningConsole(Bound);

impl App {
    /// Takes the console out of the app, if it has an address of its own. Call it before the app is
    /// built, which fails with such a console.
    pub(super) fn take_console(&mut self) -> Option<OwnConsole> {
        let mut console = *self.console.take()?;
        // Its middleware may need them.
        console.app.router.states = self.router.states.clone();
        console.app.settings.proxies = self.settings.proxies.clone();
        Some(console)
    }

    /// Refuses a console that nobody would bind.
    pub(super) fn check_console(&self) -> Result<()> {
        let Some(console) = &self.console else { return Ok(()) };
        Err(Error::start_up(format!(
            "the console has an address of its own, {}, which `App::build` cannot bind: use \
             `App::listen_on` or `App::start_on`, or leave `Console::address` out",
            console.address
        )))
    }
}

impl BoundConsole {
    /// Binds the address. If a new process can take over the app, it takes over the console in the
    /// same way, by a socket beside that of the app.
    pub(super) fn bind(console: OwnConsole, of_app: &Listen) -> Result<Self> {
        let OwnConsole { address, prefix, app } = console;
        // A loop of its own, so that it answers while those of the app are busy.
        let config = ServerConfig::default()
            .event_loops(1)
            .threads_max(THREADS_MAX)
            .connections_max(CONNECTIONS_MAX)
            .raise_descriptor_limit(false)
            .drain_timeout(DRAIN)
            .thread_name("console");
        let service = app.config(config).build()?;
        let bound = bind(beside(of_app).http(address))?;
        Ok(Self { bound, service, prefix })
    }

    pub(super) fn start(self) -> Result<RunningConsole> {
        let Self { bound, service, prefix } = self;
        bound.server.spawn(service).map_err(start_up)?;
        for url in &bound.urls {
            log_address(&format!("{url}{prefix}, with the console"));
        }
        Ok(RunningConsole(bound))
    }
}

#[cfg(unix)]
fn beside(of_app: &Listen) -> Listen {
    let Some(path) = &of_app.restart else { return Listen::new() };
    let mut path = path.clone().into_os_string();
    path.push(".console");
    Listen::new().hot_restart(path)
}

#[cfg(not(unix))]
fn beside(_: &Listen) -> Listen {
    Listen::new()
}

impl RunningConsole {
    /// Ends the feed of those who still look, and waits until they have been told.
    pub(super) fn end(self) {
        self.0.server.shutdown_handle().shutdown();
        self.0.server.wait();
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        self.0.server.local_addr()
    }
}

impl Drop for RunningConsole {
    fn drop(&mut self) {
        self.0.server.shutdown_handle().shutdown();
    }
}
