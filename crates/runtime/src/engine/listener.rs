//! Listening sockets: one address, a socket for each event loop where the system can share a port.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::budget::clients::Place;
use crate::config::BACKLOG;
use crate::error::{Error, Kind};
use crate::transport::{Peer, Transport};

/// A bound address. It listens already, so that the port is taken and peers wait until the engine
/// runs.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: BoundSocket,
    /// Whether every connection begins with a PROXY header.
    pub(crate) expects_proxy_header: bool,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp {
        socket: Socket,
        address: SocketAddr,
    },
    #[cfg(unix)]
    Unix {
        listener: std::os::unix::net::UnixListener,
        path: UnixPath,
    },
}

/// A socket file that goes away with its owner.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct UnixPath(PathBuf);

#[cfg(unix)]
impl Drop for UnixPath {
    fn drop(&mut self) {
        // Nobody to tell: a file that is gone already is just what was wanted.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds the first of the addresses that can be bound.
pub(crate) fn bind(address: impl ToSocketAddrs, name: &str) -> Result<Bound, Error> {
    let addresses = address
        .to_socket_addrs()
        .map_err(|source| Kind::Resolve { address: name.to_owned(), source })?;
    let mut failure = Kind::NoAddress { address: name.to_owned() };
    for address in addresses {
        match bind_tcp(address, false) {
            Ok(socket) => {
                let address = local_address(&socket).unwrap_or(address);
                return Ok(BoundSocket::Tcp { socket, address }.into());
            }
            Err(source) => failure = Kind::Bind { address, source },
        }
    }
    Err(failure.into())
}

/// Binds a Unix socket. A file left by a server that died is replaced; one that a living server
/// holds is an error.
#[cfg(unix)]
pub(crate) fn bind_unix(path: &Path) -> Result<Bound, Error> {
    use std::os::unix::net::{UnixListener, UnixStream};

    let failed = |source| Kind::BindPath { path: path.to_owned(), source };
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead_socket(path) => {
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path)
        }
        result => result,
    };
    let listener = listener.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    return Ok(BoundSocket::Unix { listener, path: UnixPath(path.to_owned()) }.into());

    fn is_dead_socket(path: &Path) -> bool {
        use std::os::unix::fs::FileTypeExt;
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
            && UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Without `shared` the port must be free, so that a second server on it is an error and not a
/// silent partner; further sockets of this server then share it.
fn bind_tcp(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Sockets of an earlier run may still wait out their last packets: they do not hold the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    // Inherited by what is accepted: a response in several writes must not wait for an answer to
    // the first.
    socket.set_tcp_nodelay(true)?;
    if shared {
        set_shared(&socket)?;
    }
    socket.bind(&address.into())?;
    // Bound is not taken: with `SO_REUSEADDR` it is the one that listens who has the port.
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

/// Elsewhere a shared port does not spread connections: one loop accepts, the others adopt.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set_shared(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn local_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok()?.as_socket()
}

impl From<BoundSocket> for Bound {
    fn from(socket: BoundSocket) -> Self {
        Self { socket, expects_proxy_header: false }
    }
}

impl Bound {
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            BoundSocket::Tcp { address, .. } => Some(*address),
            #[cfg(unix)]
            BoundSocket::Unix { .. } => None,
        }
    }

    /// Listens, with up to `loops` sockets. The first one is always there.
    pub(crate) fn listen(self, backlog: u32, loops: usize) -> io::Result<Vec<Listener>> {
        let expects_proxy_header = self.expects_proxy_header;
        match self.socket {
            BoundSocket::Tcp { socket, address } => {
                let mut sockets = Vec::with_capacity(loops);
                let shareable = loops > 1 && set_shared(&socket).is_ok();
                sockets.push(socket);
                while shareable && sockets.len() < loops {
                    sockets.push(bind_tcp(address, true)?);
                }
                let listen = |socket: Socket| {
                    socket.listen(self::backlog(backlog))?;
                    let socket =
                        ListenerSocket::Tcp(mio::net::TcpListener::from_std(socket.into()));
                    Ok(Listener { socket, expects_proxy_header })
                };
                sockets.into_iter().map(listen).collect()
            }
            #[cfg(unix)]
            BoundSocket::Unix { listener, path } => {
                let listener = mio::net::UnixListener::from_std(listener);
                let socket = ListenerSocket::Unix { listener, _path: path };
                Ok(vec![Listener { socket, expects_proxy_header }])
            }
        }
    }

    /// Takes a socket that listens already, as a supervisor passes it on.
    pub(crate) fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let socket = Socket::from(listener);
        let address = local_address(&socket).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // What is accepted inherits it; a socket that cannot is slower, not wrong.
        let _ = SockRef::from(&socket).set_tcp_nodelay(true);
        Ok(BoundSocket::Tcp { socket, address }.into())
    }
}

/// A socket that accepts for one event loop.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: ListenerSocket,
    expects_proxy_header: bool,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(mio::net::TcpListener),
    #[cfg(unix)]
    Unix {
        listener: mio::net::UnixListener,
        _path: UnixPath,
    },
}

/// What a listener accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) transport: Transport,
    pub(crate) peer: Peer,
    pub(crate) expects_proxy_header: bool,
    /// Its place among the connections of its client, where that is bounded.
    pub(crate) place: Option<Arc<Place>>,
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
        Ok(Accepted {
            transport,
            peer,
            expects_proxy_header: self.expects_proxy_header,
            place: None,
        })
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

/// Whether an error of `accept` concerns the one connection that was to be accepted, which is gone.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
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

/// Whether an error of `accept` says that the process, or the system, has no descriptor left.
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
