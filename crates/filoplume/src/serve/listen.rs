//! The addresses of an app.

use std::fmt;
use std::path::Path;

use filoplume_runtime::{IntoAddress, ServerBuilder};
#[cfg(feature = "tls")]
use filoplume_runtime::{ServerConfig, Tls};

#[cfg(all(unix, feature = "tls"))]
use super::beside;

/// The addresses on which an app listens, for [`App::listen_on`](crate::App::listen_on) and
/// [`App::start_on`](crate::App::start_on), which report addresses that cannot be bound.
///
/// ```
/// use filoplume::Listen;
/// use filoplume::prelude::*;
///
/// let listen = Listen::new().http("127.0.0.1:0").http("127.0.0.1:0");
/// let app = App::new().get("/", || "hi").start_on(listen)?;
/// assert!(app.url().starts_with("http://127.0.0.1:"));
/// app.shutdown();
/// # Ok::<(), Error>(())
/// ```
#[must_use = "an app uses the addresses: see `App::listen_on`"]
pub struct Listen {
    /// The addresses, or the first error.
    pub(super) builder: Result<ServerBuilder, filoplume_runtime::Error>,
    /// The schemes of the TCP addresses, in order.
    pub(super) schemes: Vec<&'static str>,
    /// The names of the other addresses.
    pub(super) others: Vec<String>,
    /// The addresses that redirect, if there are any.
    pub(super) redirects: Option<ServerBuilder>,
    /// The control socket of a server that can be taken over.
    #[cfg(unix)]
    pub(super) restart: Option<std::path::PathBuf>,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            builder: Ok(ServerBuilder::default()),
            schemes: Vec::new(),
            others: Vec::new(),
            redirects: None,
            #[cfg(unix)]
            restart: None,
        }
    }
}

impl Listen {
    /// Returns a list without addresses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the control socket of a server that can be taken over.
    pub(super) fn restart_path(&self) -> Option<&Path> {
        #[cfg(unix)]
        return self.restart.as_deref();
        #[cfg(not(unix))]
        None
    }

    /// Lets a new process of the program take over from a running one: see
    /// [`App::hot_restart`](crate::App::hot_restart). Call it before the addresses are added.
    #[cfg(unix)]
    pub fn hot_restart(mut self, path: impl AsRef<Path>) -> Self {
        self.restart = Some(path.as_ref().to_owned());
        self.builder = self.builder.and_then(|builder| builder.hot_restart(path));
        self
    }

    /// Adds an address for plain HTTP. Port 0 selects a free port.
    pub fn http(mut self, address: impl IntoAddress) -> Self {
        self.schemes.push("http");
        self.builder = self.builder.and_then(|builder| builder.bind(address));
        self
    }

    /// Adds an address for HTTP over TLS.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::{Listen, Tls};
    ///
    /// let tls = Tls::from_pem_files("cert.pem", "key.pem");
    /// let app = App::new().get("/", || "hi").start_on(Listen::new().https("127.0.0.1:0", tls));
    /// assert!(format!("{:?}", app.unwrap_err()).contains("cert.pem"));
    /// ```
    #[cfg(feature = "tls")]
    pub fn https(mut self, address: impl IntoAddress, tls: Tls) -> Self {
        self.schemes.push("https");
        self.builder = self.builder.and_then(|builder| builder.bind_tls(address, tls));
        self
    }

    /// Adds a Unix socket. Its file is removed when the app ends.
    #[cfg(unix)]
    pub fn unix(mut self, path: impl AsRef<Path>) -> Self {
        self.others.push(path.as_ref().display().to_string());
        self.builder = self.builder.and_then(|builder| builder.bind_unix(path));
        self
    }

    /// Adds the sockets that systemd has bound for this program, for plain HTTP. Call it after the
    /// other addresses. See [`App::listen_systemd`](crate::App::listen_systemd).
    #[cfg(all(unix, feature = "systemd"))]
    pub fn systemd(mut self) -> Self {
        self.builder = self.builder.and_then(ServerBuilder::systemd_sockets);
        self
    }

    /// Adds an address that answers every request with a `308` to the same path over `https`, at
    /// the port of the first [`https`](Self::https) address. The app does not see these requests.
    /// The host is that of the request; a request without a valid one is answered with `400`.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    /// use filoplume::{Listen, Tls};
    ///
    /// let tls = Tls::from_pem_files("cert.pem", "key.pem");
    /// let listen = Listen::new().https("0.0.0.0:443", tls).redirect_to_https("0.0.0.0:80");
    /// App::new().get("/", || "hi").listen_on(listen)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn redirect_to_https(mut self, address: impl IntoAddress) -> Self {
        let builder = self.redirects.take().map_or_else(|| redirecting(self.restart_path()), Ok);
        match builder.and_then(|builder| builder.bind(address)) {
            Ok(builder) => self.redirects = Some(builder),
            Err(error) => self.builder = self.builder.and(Err(error)),
        }
        self
    }
}

/// Returns the builder of a server that only redirects. One loop is plenty for that.
#[cfg(feature = "tls")]
fn redirecting(restart: Option<&Path>) -> Result<ServerBuilder, filoplume_runtime::Error> {
    let config = ServerConfig::strict().event_loops(1).threads_max(1).thread_name("redirect");
    let builder = ServerBuilder::default().config(config);
    #[cfg(unix)]
    if let Some(path) = restart {
        return builder.hot_restart(beside::restart_path(path, "redirect"));
    }
    let _ = restart;
    Ok(builder)
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listen")
            .field("schemes", &self.schemes)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}
