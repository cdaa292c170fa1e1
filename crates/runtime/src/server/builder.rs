//! The addresses and the configuration of a server.

#[cfg(all(unix, feature = "systemd"))]
use std::io;
#[cfg(unix)]
use std::net::SocketAddr;
use std::net::TcpListener;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::address::{IntoAddress, resolve};
#[cfg(unix)]
use super::restart::Restart;
use super::{Server, Shared, State};
use crate::config::ServerConfig;
use crate::engine::listener::{self, Bound};
use crate::error::{Error, Kind, Result};
use crate::service::stopping::Stopping;

/// Collects addresses and the configuration of a [`Server`].
///
/// ```
/// use filoplume_runtime::{Server, ServerConfig};
///
/// let server = Server::builder()
///     .bind("127.0.0.1:0")?
///     .bind("[::1]:0")?
///     .config(ServerConfig::strict())
///     .build()?;
/// assert_eq!(server.local_addrs().len(), 2);
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ServerBuilder {
    config: Option<Box<ServerConfig>>,
    pub(super) bound: Vec<Bound>,
    #[cfg(unix)]
    restart: Option<Restart>,
    /// The listeners of the running server.
    #[cfg(unix)]
    inherited: Vec<socket2::Socket>,
}

impl ServerBuilder {
    /// Binds one more address. Peers can connect, and wait until the server serves.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be resolved or bound.
    pub fn bind(mut self, address: impl IntoAddress) -> Result<Self> {
        self.bind_text(&address.into_address())?;
        Ok(self)
    }

    fn bind_text(&mut self, address: &str) -> Result<()> {
        let addresses = resolve(address)?;
        #[cfg(unix)]
        if let Some(bound) = self.inherit(addresses.as_slice()) {
            self.bound.push(bound);
            return Ok(());
        }
        self.bound.push(listener::bind(addresses.as_slice())?);
        Ok(())
    }

    /// Binds one more address, a Unix socket. The server removes its file when it ends.
    ///
    /// # Errors
    ///
    /// Returns an error if the path cannot be bound. A socket file on which no server listens is
    /// replaced.
    #[cfg(unix)]
    pub fn bind_unix(mut self, path: impl AsRef<Path>) -> Result<Self> {
        let bound = match Bound::inherit_unix(path.as_ref(), &mut self.inherited) {
            Some(bound) => bound,
            None => listener::bind_unix(path.as_ref())?,
        };
        self.bound.push(bound);
        Ok(self)
    }

    /// Adds a listener that was bound elsewhere, such as by a supervisor.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be made non-blocking or has no address.
    pub fn listener(mut self, listener: TcpListener) -> Result<Self> {
        let bound = Bound::from_std(listener)
            .map_err(|source| Kind::Start { what: "to listen", source })?;
        self.bound.push(bound);
        Ok(self)
    }

    /// Adds the sockets that systemd has bound for this program (socket activation): the unit's
    /// `.socket` file lists them. While the program restarts, systemd keeps them open, and clients
    /// wait instead of being refused.
    ///
    /// Call it before the program starts threads: it removes `LISTEN_FDS` and `LISTEN_PID` from the
    /// environment, so that child processes do not take the sockets for theirs.
    ///
    /// ```no_run
    /// use filoplume_runtime::Server;
    ///
    /// let server = Server::builder().systemd_sockets()?.build()?;
    /// # drop(server);
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if systemd has passed no sockets, or something that is not a listening TCP
    /// or Unix socket.
    #[cfg(all(unix, feature = "systemd"))]
    pub fn systemd_sockets(mut self) -> Result<Self> {
        let failed = |source| Kind::Start { what: "with the sockets of systemd", source };
        let mut sockets = super::systemd::sockets().map_err(failed)?;
        if sockets.is_empty() {
            let reason = "`LISTEN_FDS` is not set: start the program by its `.socket` unit";
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, reason)).into());
        }
        self.bound.append(&mut sockets);
        Ok(self)
    }

    /// Lets a new process of the program take over from a running one, without a refused connection
    /// and without closing idle ones. `path` is a Unix socket over which they find each other. Call
    /// it before the addresses are bound: those of the running server are taken over.
    ///
    /// Start the new version like the old one. It gets the listening sockets, and both accept. When
    /// the new process serves, the old one stops accepting. It passes on each connection that waits
    /// for its next request, with the bytes that it has read. It finishes the requests that have
    /// begun, passes their connections on as well, and ends. If the new process fails before it
    /// serves, the old one continues as if nothing had happened.
    ///
    /// TLS connections, upgraded ones and raw protocols stay with the old process, which drains
    /// them. Only a process of the same user can take over.
    ///
    /// ```no_run
    /// use filoplume_runtime::{Request, Server};
    ///
    /// let builder = Server::builder().hot_restart("/run/app/restart.sock")?;
    /// let server = builder.bind("0.0.0.0:80")?.build()?;
    /// server.serve(|_: Request| "Hello!")?;
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a process of another user listens at the path, or if the running server
    /// does not respond.
    #[cfg(unix)]
    pub fn hot_restart(mut self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (restart, inherited) = Restart::prepare(path)
            .map_err(|source| Kind::BindPath { path: path.to_owned(), source })?;
        self.restart = Some(restart);
        self.inherited = inherited;
        Ok(self)
    }

    /// Takes the listeners of the running server for an address, if it has some.
    #[cfg(unix)]
    fn inherit(&mut self, addresses: &[SocketAddr]) -> Option<Bound> {
        if self.inherited.is_empty() {
            return None;
        }
        addresses.iter().find_map(|address| Bound::inherit(*address, &mut self.inherited))
    }

    /// Expects a PROXY header, of version 1 or 2, at the start of every connection to the address
    /// that was bound last. [The peer](crate::Request::peer) of its requests is the client that the
    /// header names.
    ///
    /// This is a setting of an address, not of the configuration, because it is a matter of trust.
    /// A peer that reaches the address can claim any client address, so only proxies may reach it.
    /// Other addresses of the same server, such as one for health checks, can do without. For the
    /// same reason the header is not optional: a connection without a valid header is closed,
    /// logged and counted in
    /// [`Metrics::proxy_headers_refused`](crate::Metrics::proxy_headers_refused).
    ///
    /// The peer is the socket's peer if the proxy connects on its own behalf (`LOCAL`), does not
    /// know its client (`UNKNOWN`, `UNSPEC`), or its client does not use TCP. The header counts
    /// against the [deadline of the head](ServerConfig::head_timeout). It has at most 536 bytes,
    /// which fit the smallest segment.
    ///
    /// ```
    /// use filoplume_runtime::Server;
    ///
    /// let server = Server::builder()
    ///     .bind("127.0.0.1:0")?
    ///     .proxy_protocol()?
    ///     .bind("127.0.0.1:0")? // without
    ///     .build()?;
    /// # drop(server);
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if nothing was bound before.
    pub fn proxy_protocol(mut self) -> Result<Self> {
        let bound = self.bound.last_mut().ok_or(Kind::NoListener)?;
        bound.entry.expects_proxy_header = true;
        Ok(self)
    }

    /// Sets the configuration. It replaces the [service's own](crate::Service::config) as a whole.
    /// Without a call of this method the server uses the service's configuration, or otherwise the
    /// default.
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = Some(Box::new(config));
        self
    }

    /// Returns the server.
    ///
    /// # Errors
    ///
    /// Returns an error if no address was bound.
    pub fn build(self) -> Result<Server> {
        if self.bound.is_empty() {
            return Err(Error::from(Kind::NoListener));
        }
        let local_addrs = self.bound.iter().filter_map(Bound::local_address).collect();
        #[cfg(feature = "tls")]
        let acceptors = self.bound.iter().filter_map(|bound| bound.entry.tls.clone()).collect();
        let state = Mutex::new(State::Bound {
            config: self.config,
            bound: self.bound,
            #[cfg(unix)]
            restart: self.restart,
        });
        let shared = Shared {
            local_addrs,
            stopping: Stopping::new(),
            #[cfg(feature = "tls")]
            acceptors,
            state,
            started: Condvar::new(),
        };
        Ok(Server { shared: Arc::new(shared) })
    }
}
