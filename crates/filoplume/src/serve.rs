//! The connection between an app and the engine. Only this file uses the engine's `Server`. Its
//! builder is used in `listen` as well, which collects the addresses.

mod beside;
mod listen;
#[cfg(feature = "tls")]
mod redirect;
mod service;

use std::iter;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;

#[cfg(feature = "tls")]
use filoplume_runtime::Request;
use filoplume_runtime::{IntoAddress, Server, ServerBuilder, ShutdownHandle};

pub use self::listen::Listen;
pub use self::service::AppService;

use crate::app::{App, Beside, Part};
use crate::core::error::{Error, Result};
use crate::log::log_without_subscriber;

impl App {
    /// Returns the app as a service for a [`Server`], for programs that bind the server themselves.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/{a}", || "one").get("/{b}", || "other");
    /// let error = app.build().unwrap_err();
    /// assert!(format!("{error:?}").contains("the app cannot start"));
    /// ```
    ///
    /// # Errors
    ///
    /// If routes conflict, a pattern is invalid, or a handler extracts a state that was not added.
    /// Also if the console or the metrics have an address of their own, because this method does
    /// not bind it.
    pub fn build(self) -> Result<AppService> {
        if let Some(beside) = &self.beside {
            return Err(Error::start_up(beside.unbound()));
        }
        Ok(AppService::new(self.into_built()?))
    }

    /// Serves requests at an address, such as `127.0.0.1:5000`, until SIGTERM or SIGINT. Requests
    /// in progress are finished first; a second signal ends the process at once.
    ///
    /// The address is logged at start-up, including the port that the system chose for port 0. In a
    /// program without a `tracing` subscriber it is written to stderr.
    ///
    /// To serve several addresses, use [`listen_on`](Self::listen_on). To serve a socket from a
    /// supervisor, use [`build`](Self::build) and a [`Server`]; see [`AppService`]. To continue
    /// without blocking, use [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// If the app has mistakes (see [`build`](Self::build)), or the address cannot be bound.
    #[doc(alias("serve", "run", "bind", "graceful_shutdown"))]
    pub fn listen(self, address: impl IntoAddress) -> Result<()> {
        let listen = self.begin_listen();
        self.listen_on(listen.http(address))
    }

    /// Like [`listen`](Self::listen), over TLS.
    ///
    /// ```no_run
    /// use filoplume::Tls;
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     App::new()
    ///         .get("/", || "Hello!")
    ///         .listen_tls("0.0.0.0:443", Tls::from_pem_files("cert.pem", "key.pem"))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Like those of `listen`. If a certificate or a key cannot be used, the error names the file.
    #[cfg(feature = "tls")]
    pub fn listen_tls(self, address: impl IntoAddress, tls: filoplume_runtime::Tls) -> Result<()> {
        let listen = self.begin_listen();
        self.listen_on(listen.https(address, tls))
    }

    /// Like [`listen`](Self::listen), on several addresses at once.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    /// use filoplume::{Listen, Tls};
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     let tls = Tls::from_pem_files("cert.pem", "key.pem");
    ///     App::new().get("/", || "Hello!").listen_on(
    ///         Listen::new()
    ///             .https("0.0.0.0:443", tls)
    ///             .redirect_to_https("0.0.0.0:80")
    ///             .http("127.0.0.1:5000"),
    ///     )
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Like those of `listen`, for each address.
    pub fn listen_on(mut self, listen: Listen) -> Result<()> {
        let mut beside = self.take_beside();
        let service = self.build()?;
        if let Some(beside) = &mut beside {
            beside.bind(listen.restart_path())?;
        }
        let Bound { server, urls, redirects } = bind(listen)?;
        #[cfg(unix)]
        server.shutdown_on_signals().map_err(start_up)?;
        for url in &urls {
            log_address(url);
        }
        let _redirects = redirects.map(Redirects::start).transpose()?;
        // In a hot restart the old process ends when its app is taken over. Addresses that are not
        // taken over by then end with it, so the app comes last.
        if let Some(beside) = &mut beside {
            beside.start()?;
        }
        server.spawn(service).map_err(start_up)?;
        #[cfg(unix)]
        server.notify_systemd().map_err(start_up)?;
        server.wait();
        if let Some(mut beside) = beside {
            beside.end();
        }
        Ok(())
    }

    /// Like [`listen`](Self::listen), at a Unix socket, for a proxy on the same machine. The file
    /// is removed when the server ends.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     App::new().get("/", || "Hello, proxy!").listen_unix("/run/hello.sock")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Like those of `listen`. A socket file of a server that has ended is replaced.
    #[cfg(unix)]
    pub fn listen_unix(self, path: impl AsRef<Path>) -> Result<()> {
        let listen = self.begin_listen();
        self.listen_on(listen.unix(path))
    }

    /// Like [`listen`](Self::listen), on the sockets that systemd has bound for this program
    /// (socket activation). While the program restarts, systemd keeps them open, and clients wait
    /// instead of being refused. The guide has the unit files.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     App::new().get("/", || "Hello!").listen_systemd()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Like those of `listen`, and an error if systemd has passed no sockets.
    #[cfg(all(unix, feature = "systemd"))]
    pub fn listen_systemd(self) -> Result<()> {
        self.listen_on(Listen::new().systemd())
    }

    /// Takes the servers of other addresses out of the app, before the app is built.
    fn take_beside(&mut self) -> Option<Box<dyn Beside>> {
        let mut beside = self.beside.take();
        if let Some(beside) = &mut beside {
            beside.inherit(self);
        }
        beside
    }

    /// Begins a list of addresses for this app.
    pub(crate) fn begin_listen(&self) -> Listen {
        let listen = Listen::new();
        #[cfg(unix)]
        if let Some(path) = &self.hot_restart {
            return listen.hot_restart(path);
        }
        listen
    }

    /// Starts to serve requests at an address on other threads, and returns at once. It is useful
    /// for tests over a socket, and for programs with other work to do. Port 0 selects a free port.
    ///
    /// Signals are not handled: by default SIGTERM and Ctrl-C end the process at once and cut off
    /// responses in progress. [`RunningApp::shutdown_on_signals`] finishes them first, as
    /// [`listen`](Self::listen) does.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::io::{Read, Write};
    /// use std::net::TcpStream;
    ///
    /// let app = App::new().get("/", || "hi").start("127.0.0.1:0")?;
    /// let mut socket = TcpStream::connect(app.local_addr())?;
    /// socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    /// let mut answer = String::new();
    /// socket.read_to_string(&mut answer)?;
    /// assert!(answer.ends_with("\r\n\r\nhi"));
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Like those of [`listen`](Self::listen).
    pub fn start(self, address: impl IntoAddress) -> Result<RunningApp> {
        let listen = self.begin_listen();
        self.start_on(listen.http(address))
    }

    /// Like [`start`](Self::start), on several addresses at once. At least one of them must be a
    /// TCP address.
    ///
    /// ```
    /// use filoplume::Listen;
    /// use filoplume::prelude::*;
    ///
    /// let listen = Listen::new().http("127.0.0.1:0").http("127.0.0.1:0");
    /// let app = App::new().get("/", || "hi").start_on(listen)?;
    /// assert_eq!(app.server().local_addrs().len(), 2);
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Like those of [`listen_on`](Self::listen_on).
    pub fn start_on(mut self, listen: Listen) -> Result<RunningApp> {
        let mut beside = self.take_beside();
        let service = self.build()?;
        if let Some(beside) = &mut beside {
            beside.bind(listen.restart_path())?;
        }
        let Bound { server, urls, redirects } = bind(listen)?;
        let (Some(local_addr), Some(url)) = (server.local_addr(), urls.into_iter().next()) else {
            return Err(Error::start_up("the app has no TCP address to listen on"));
        };
        let redirects = redirects.map(Redirects::start).transpose()?;
        // Before the app, as in `listen_on`.
        if let Some(beside) = &mut beside {
            beside.start()?;
        }
        server.spawn(service).map_err(start_up)?;
        Ok(RunningApp { server, local_addr, url, redirects, beside })
    }
}

/// The bound addresses.
#[derive(Debug)]
struct Bound {
    server: Server,
    /// The URLs and names for the log. Those of TCP addresses come first.
    urls: Vec<String>,
    /// The server that redirects, and the port that it redirects to.
    redirects: Option<(Server, u16)>,
}

fn bind(listen: Listen) -> Result<Bound> {
    let Listen { builder, schemes, others, redirects, .. } = listen;
    let server = builder.and_then(ServerBuilder::build).map_err(start_up)?;
    let addresses = server.local_addrs();
    // The sockets of systemd follow the other addresses, and are for plain HTTP.
    let all_schemes = schemes.iter().chain(iter::repeat(&"http"));
    let urls = addresses.iter().zip(all_schemes).map(|(to, scheme)| format!("{scheme}://{to}"));
    let urls = urls.chain(others).collect();
    let https = schemes.iter().position(|&scheme| scheme == "https");
    let port = https.and_then(|index| addresses.get(index)).map(SocketAddr::port);
    let redirects = match (redirects, port) {
        (None, _) => None,
        (Some(redirects), Some(port)) => Some((redirects.build().map_err(start_up)?, port)),
        (Some(_), None) => {
            return Err(Error::start_up(
                "`redirect_to_https` has nothing to redirect to: add an address with `https`",
            ));
        }
    };
    Ok(Bound { server, urls, redirects })
}

/// The server that redirects to `https`. It ends with the app.
#[derive(Debug)]
struct Redirects(Server);

impl Redirects {
    #[cfg(feature = "tls")]
    fn start((server, port): (Server, u16)) -> Result<Self> {
        server
            .spawn(move |request: Request| redirect::to_https(&request, port))
            .map_err(start_up)?;
        for address in server.local_addrs() {
            log_address(&format!("http://{address}, to redirect to https"));
        }
        Ok(Self(server))
    }

    /// Without TLS there is nothing to redirect to.
    #[cfg(not(feature = "tls"))]
    fn start((server, _): (Server, u16)) -> Result<Self> {
        Ok(Self(server))
    }
}

impl Drop for Redirects {
    fn drop(&mut self) {
        self.0.shutdown_handle().shutdown();
    }
}

fn log_address(address: &str) {
    tracing::info!("listening on {address}");
    log_without_subscriber(&format!("listening on {address}"));
}

/// Converts an error of the engine, so that `main` prints its message and not the status of a
/// response.
fn start_up(error: filoplume_runtime::Error) -> Error {
    Error::start_up_with(error)
}

/// An app that serves requests in the background, made by [`App::start`]. Dropping it shuts the app
/// down without waiting.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "hi").start("127.0.0.1:0")?;
/// assert_eq!(app.url(), format!("http://{}", app.local_addr()));
/// assert_eq!(app.server().metrics().map(|metrics| metrics.requests), Some(0));
/// app.shutdown();
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the app shuts down when this is dropped"]
pub struct RunningApp {
    server: Server,
    local_addr: SocketAddr,
    url: String,
    redirects: Option<Redirects>,
    beside: Option<Box<dyn Beside>>,
}

impl RunningApp {
    /// Returns the address, including the port that was chosen for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the URL of the root at the first address, such as `http://127.0.0.1:41234`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Returns the address on which requests are redirected to `https`, if there is one.
    pub fn redirect_addr(&self) -> Option<SocketAddr> {
        self.redirects.as_ref()?.0.local_addr()
    }

    /// Returns the [address of the console](crate::Console::address), if it has one of its own.
    #[cfg(feature = "console")]
    #[cfg_attr(docsrs, doc(cfg(feature = "console")))]
    pub fn console_addr(&self) -> Option<SocketAddr> {
        self.beside.as_ref()?.addr_of(Part::Console)
    }

    /// Returns the [address of the probes](crate::Health::address), if they have one of their own.
    pub fn health_addr(&self) -> Option<SocketAddr> {
        self.beside.as_ref()?.addr_of(Part::Health)
    }

    /// Returns the [address of the metrics](App::metrics_on), if they have one of their own.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.beside.as_ref()?.addr_of(Part::Metrics)
    }

    /// Returns a handle that shuts the app down from any thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.server.shutdown_handle()
    }

    /// Shuts the app down on SIGTERM and SIGINT, as [`App::listen`] does: requests in progress are
    /// finished first, and a second signal ends the process at once. [`wait`](Self::wait) returns
    /// when the app has ended.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     let app = App::new().get("/", || "hi").start("127.0.0.1:5000")?;
    ///     app.shutdown_on_signals()?;
    ///     // .. what the program does beside
    ///     app.wait();
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the system does not allow this program to handle signals.
    #[cfg(unix)]
    pub fn shutdown_on_signals(&self) -> Result<()> {
        self.server.shutdown_on_signals().map_err(start_up)
    }

    /// Returns the server of the app, with its counters and gauges.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Waits until the app is shut down, by a [handle](Self::shutdown_handle) or, after
    /// [`shutdown_on_signals`](Self::shutdown_on_signals), by a signal.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::thread;
    ///
    /// let app = App::new().get("/", || "hi").start("127.0.0.1:0")?;
    /// let handle = app.shutdown_handle();
    /// thread::spawn(move || handle.shutdown()); // such as when the rest of the program ends
    /// app.wait();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn wait(&self) {
        self.server.wait();
    }

    /// Shuts the app down and waits until requests in progress are finished.
    pub fn shutdown(mut self) {
        self.server.shutdown_handle().shutdown();
        self.server.wait();
        if let Some(beside) = &mut self.beside {
            beside.end();
        }
    }
}

impl Drop for RunningApp {
    fn drop(&mut self) {
        self.server.shutdown_handle().shutdown();
    }
}
