//! The way from the engine to the app and back. Only this file names the engine's server.

use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use filoplume_runtime::{Plan, Request, Response, Server, Service};

use crate::app::{App, Core};
use crate::error::Result;
use crate::routing::{Found, NO_ROUTE};

/// An app as a service of the engine, for those who bind the server themselves:
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::Server;
///
/// let app = App::new().get("/", || "Hello!").build()?;
/// let server = Server::builder().bind("127.0.0.1:0")?.bind("[::1]:0")?.build()?;
/// server.spawn(app)?;
/// server.shutdown_handle().shutdown();
/// server.wait();
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct AppService {
    core: Arc<Core>,
}

impl AppService {
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Arc::new(core) }
    }
}

impl Service for AppService {
    #[inline]
    fn plan(&self, request: &mut Request) -> Plan {
        let table = &self.core.table;
        match table.find(request.method(), request.path()) {
            Found::Route(number) => match table.route(number) {
                Some(route) => route.options.plan(request, number),
                None => Plan::new(),
            },
            // Answered in the call, behind the app's middleware; nobody wants the content.
            _ => Plan::new().streamed().route(NO_ROUTE),
        }
    }

    #[inline]
    fn call(&self, request: Request) -> Response {
        self.core.answer(request)
    }
}

impl fmt::Debug for AppService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl App {
    /// Answers requests at an address, such as `127.0.0.1:5000`, until SIGTERM or SIGINT. What was begun is finished
    /// first; a second signal ends the process at once.
    ///
    /// # Errors
    ///
    /// If the app has mistakes (see [`build`](Self::build)), or the address cannot be bound.
    pub fn listen(self, address: impl ToSocketAddrs + ToString) -> Result<()> {
        let config = self.config.clone();
        let service = self.build()?;
        let server = Server::builder().bind(address)?.config(config).build()?;
        #[cfg(unix)]
        server.shutdown_on_signals()?;
        for address in server.local_addrs() {
            tracing::info!("listening on http://{address}");
        }
        server.serve(service)?;
        Ok(())
    }
}
