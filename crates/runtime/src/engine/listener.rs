//! Listening sockets. An address has one socket per event loop if the system can share a port.

use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::{Path, PathBuf};
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::budget::clients::CountsFor;
use crate::config::{BACKLOG, ServerConfig};
use crate::error::{Error, Kind};
#[cfg(feature = "tls")]
use crate::tls::acceptor::Acceptor;
use crate::transport::{Peer, Transport};

/// A bound address. It already listens, so the port is taken and peers wait until the engine runs.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: BoundSocket,
    pub(crate) entry: Entry,
}

/// What every connection to an address begins with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// A PROXY header.
    pub(crate) expects_proxy_header: bool,
    /// A TLS handshake.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<Acceptor>>,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp {
        socket: Socket,
        address: SocketAddr,
        /// Whether no further socket may be bound to the address.
        is_alone: bool,
    },
    /// Sockets of one address that another process has bound.
    #[cfg(unix)]
    Inherited { sockets: Vec<Socket>, address: SocketAddr },
    #[cfg(unix)]
    Unix {
        listener: std::os::unix::net::UnixListener,
        /// `None` if the file belongs to somebody else.
        path: Option<UnixPath>,
    },
}

/// The path of a socket file, which is removed on drop.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct UnixPath(Option<PathBuf>);

#[cfg(unix)]
impl UnixPath {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(Some(path))
    }

    /// Leaves the file to somebody else.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

#[cfg(unix)]
impl Drop for UnixPath {
    fn drop(&mut self) {
        // There is nobody to report an error to, and a file that is already removed is no problem.
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds the first of the addresses that can be bound.
pub(crate) fn bind(addresses: &[SocketAddr]) -> Result<Bound, Error> {
    let mut failure = Kind::NoListener;
    for &address in addresses {
        match bind_tcp(address, false) {
            Ok(socket) => {
                let address = local_address(&socket).unwrap_or(address);
                return Ok(BoundSocket::Tcp { socket, address, is_alone: false }.into());
            }
            Err(source) => failure = Kind::Bind { address, source },
        }
    }
    Err(failure.into())
}

/// Binds a Unix socket. Replaces a socket file that no server listens on, such as one that a killed
/// server has left. Fails if another server listens on it.
#[cfg(unix)]
pub(crate) fn bind_unix(path: &Path) -> Result<Bound, Error> {
    let failed = |source| Kind::BindPath { path: path.to_owned(), source };
    let listener = bind_unix_listener(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let path = Some(UnixPath::new(path.to_owned()));
    Ok(BoundSocket::Unix { listener, path }.into())
}

/// Binds a Unix socket. Replaces a socket file that no server listens on.
#[cfg(unix)]
pub(crate) fn bind_unix_listener(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::net::{UnixListener, UnixStream};

    return match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead_socket(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        result => result,
    };

    fn is_dead_socket(path: &Path) -> bool {
        use std::os::unix::fs::FileTypeExt;
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
            && UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Binds and listens. Without `shared` the port must be free, so that a second server on it is an
/// error and does not silently share the connections. Further sockets of this server are `shared`.
fn bind_tcp(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Sockets of an earlier run may still be in TIME_WAIT. They must not block the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit this option. A response in several writes must not wait for the ACK
    // of the first one.
    socket.set_tcp_nodelay(true)?;
    if shared {
        set_shared(&socket)?;
    }
    socket.bind(&address.into())?;
    // Binding does not reserve the port: with `SO_REUSEADDR`, the first socket that listens gets
    // it.
    socket.listen(backlog(BACKLOG))?;
    Ok(socket)
}

fn backlog(connections: u32) -> i32 {
    i32::try_from(connections).unwrap_or(i32::MAX)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn set_shared(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

/// On other systems a shared port does not distribute connections: one loop accepts, and passes
/// connections on to the others.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_shared(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn local_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

impl Entry {
    /// Returns how long the TLS handshake may take or, without TLS, the first head. A PROXY header
    /// counts against the same time.
    pub(crate) fn timeout(&self, config: &ServerConfig) -> Duration {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return config.handshake_timeout;
        }
        config.head_timeout
    }
}

impl From<BoundSocket> for Bound {
    fn from(socket: BoundSocket) -> Self {
        Self { socket, entry: Entry::default() }
    }
}

impl Bound {
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            BoundSocket::Tcp { address, .. } => Some(*address),
            #[cfg(unix)]
            BoundSocket::Inherited { address, .. } => Some(*address),
            #[cfg(unix)]
            BoundSocket::Unix { .. } => None,
        }
    }

    /// Listens with one to `loops` sockets, or with all those that another process has bound.
    pub(crate) fn listen(self, backlog: u32, loops: usize) -> io::Result<Vec<Listener>> {
        let entry = self.entry;
        match self.socket {
            BoundSocket::Tcp { socket, address, is_alone } => {
                let mut sockets = Vec::with_capacity(loops);
                let shareable = loops > 1 && !is_alone && set_shared(&socket).is_ok();
                sockets.push(socket);
                while shareable && sockets.len() < loops {
                    sockets.push(bind_tcp(address, true)?);
                }
                sockets.into_iter().map(|socket| listen(socket, backlog, &entry)).collect()
            }
            // All sockets, even if there are fewer loops: each has its own backlog.
            #[cfg(unix)]
            BoundSocket::Inherited { sockets, .. } => {
                sockets.into_iter().map(|socket| listen(socket, backlog, &entry)).collect()
            }
            #[cfg(unix)]
            BoundSocket::Unix { listener, path } => {
                let listener = mio::net::UnixListener::from_std(listener);
                let socket = ListenerSocket::Unix { listener, path };
                Ok(vec![Listener { socket, entry }])
            }
        }
    }

    /// Takes the sockets of this address that another process has bound, if there are any.
    #[cfg(unix)]
    pub(crate) fn inherit(address: SocketAddr, sockets: &mut Vec<Socket>) -> Option<Self> {
        let is_here = |socket: &Socket| local_address(socket) == Some(address);
        let (here, others) = std::mem::take(sockets).into_iter().partition(is_here);
        *sockets = others;
        let sockets: Vec<Socket> = here;
        (!sockets.is_empty()).then(|| BoundSocket::Inherited { sockets, address }.into())
    }

    /// As [`inherit`](Self::inherit), for a Unix socket.
    #[cfg(unix)]
    pub(crate) fn inherit_unix(path: &Path, sockets: &mut Vec<Socket>) -> Option<Self> {
        let index = sockets.iter().position(|socket| {
            socket.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
        })?;
        let listener = std::os::fd::OwnedFd::from(sockets.swap_remove(index)).into();
        let path = Some(UnixPath::new(path.to_owned()));
        Some(BoundSocket::Unix { listener, path }.into())
    }

    /// Wraps a socket that already listens, such as one that a supervisor passes on.
    pub(crate) fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let socket = Socket::from(listener);
        let address = local_address(&socket).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // Accepted sockets inherit this option. Without it they are slower, but work.
        let _ = SockRef::from(&socket).set_tcp_nodelay(true);
        Ok(BoundSocket::Tcp { socket, address, is_alone: false }.into())
    }

    /// As [`from_std`](Self::from_std), for a Unix socket. Its file is not removed at the end.
    #[cfg(all(unix, feature = "systemd"))]
    pub(crate) fn from_unix_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(BoundSocket::Unix { listener, path: None }.into())
    }

    /// Binds no further sockets to the address. Another process keeps this socket open and accepts
    /// later what this one has not accepted. A further socket would be closed with its backlog.
    #[cfg(all(unix, feature = "systemd"))]
    pub(crate) fn alone(mut self) -> Self {
        if let BoundSocket::Tcp { is_alone, .. } = &mut self.socket {
            *is_alone = true;
        }
        self
    }
}

fn listen(socket: Socket, backlog: u32, entry: &Entry) -> io::Result<Listener> {
    socket.listen(self::backlog(backlog))?;
    let socket = ListenerSocket::Tcp(mio::net::TcpListener::from_std(socket.into()));
    Ok(Listener { socket, entry: entry.clone() })
}

/// A socket that accepts for one event loop.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: ListenerSocket,
    entry: Entry,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(mio::net::TcpListener),
    #[cfg(unix)]
    Unix {
        listener: mio::net::UnixListener,
        path: Option<UnixPath>,
    },
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) transport: Transport,
    pub(crate) peer: Peer,
    pub(crate) entry: Entry,
    pub(crate) counts_for: CountsFor,
}

impl Listener {
    pub(crate) fn accept(&self) -> io::Result<Accepted> {
        let (transport, peer) = match &self.socket {
            ListenerSocket::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                (Transport::tcp(stream), Peer::Tcp(address))
            }
            #[cfg(unix)]
            ListenerSocket::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                (Transport::unix(stream), Peer::Unix)
            }
        };
        Ok(Accepted { transport, peer, entry: self.entry.clone(), counts_for: CountsFor::Nobody })
    }

    /// Returns a further handle of the socket.
    #[cfg(unix)]
    pub(crate) fn try_clone(&self) -> io::Result<std::os::fd::OwnedFd> {
        use std::os::fd::AsFd;
        match &self.socket {
            ListenerSocket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            ListenerSocket::Unix { listener, .. } => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Ends the registration, and leaves the socket's file to another process.
    #[cfg(unix)]
    pub(crate) fn leave(&mut self, registry: &Registry) -> io::Result<()> {
        match &mut self.socket {
            ListenerSocket::Tcp(listener) => registry.deregister(listener),
            ListenerSocket::Unix { listener, path } => {
                if let Some(path) = path.take() {
                    path.keep();
                }
                registry.deregister(listener)
            }
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            ListenerSocket::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            #[cfg(unix)]
            ListenerSocket::Unix { listener, .. } => {
                registry.register(listener, token, Interest::READABLE)
            }
        }
    }
}

/// Returns whether an error of `accept` concerns only the connection that would have been accepted.
pub(crate) fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
            | ErrorKind::PermissionDenied
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
    )
}

/// Returns whether an error of `accept` says that the process or the system has no file descriptor
/// left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
    }
    #[cfg(not(unix))]
    {
        /// `WSAEMFILE`.
        const TOO_MANY_SOCKETS: i32 = 10_024;
        error.raw_os_error() == Some(TOO_MANY_SOCKETS)
    }
}
