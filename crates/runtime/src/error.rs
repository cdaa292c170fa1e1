//! Errors at start-up and of sockets, for the program that runs the server.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the engine or of one exchange, with the thing it concerns.
///
/// ```
/// use filoplume_runtime::Server;
///
/// let first = Server::bind("127.0.0.1:0")?;
/// let error = Server::bind(first.local_addr().expect("a TCP server"))
///     .expect_err("the port is taken");
/// assert!(error.is_address_in_use());
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
pub struct Error {
    kind: Box<Kind>,
}

/// The result type of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg_attr(
    not(unix),
    expect(dead_code, reason = "without Unix sockets and signals two of them cannot occur")
)]
#[derive(Debug)]
pub(crate) enum Kind {
    Resolve {
        address: String,
        source: io::Error,
    },
    Bind {
        address: SocketAddr,
        source: io::Error,
    },
    BindPath {
        path: PathBuf,
        source: io::Error,
    },
    NoListener,
    #[cfg(feature = "tls")]
    Tls {
        source: io::Error,
    },
    Start {
        what: &'static str,
        source: io::Error,
    },
    /// A value of the configuration that no server can work with.
    Config {
        mistake: &'static str,
    },
    AlreadyServing,
    Signals {
        source: io::Error,
    },
    Respond {
        source: io::Error,
    },
}

impl Error {
    /// Returns whether another socket already uses the address.
    pub fn is_address_in_use(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::AddrInUse)
    }

    /// Returns whether the system denies this program the address, such as a port below 1024.
    pub fn is_permission_denied(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::PermissionDenied)
    }

    /// Returns whether the server was started twice.
    pub fn is_already_serving(&self) -> bool {
        matches!(*self.kind, Kind::AlreadyServing)
    }

    fn io_kind(&self) -> Option<io::ErrorKind> {
        match &*self.kind {
            Kind::Resolve { source, .. }
            | Kind::Bind { source, .. }
            | Kind::BindPath { source, .. }
            | Kind::Start { source, .. }
            | Kind::Signals { source }
            | Kind::Respond { source } => Some(source.kind()),
            #[cfg(feature = "tls")]
            Kind::Tls { source } => Some(source.kind()),
            Kind::NoListener | Kind::Config { .. } | Kind::AlreadyServing => None,
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind: Box::new(kind) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::Resolve { address, source } => {
                write!(f, "cannot listen on {address}: {source}")
            }
            Kind::Bind { address, source } => {
                let reason = reason(*address, source.kind());
                write!(f, "cannot listen on {address}{reason}: {source}")
            }
            Kind::BindPath { path, source } => {
                write!(f, "cannot listen on {}: {source}", path.display())
            }
            Kind::NoListener => {
                f.write_str("the server has no address to listen on: call `bind` on the builder")
            }
            #[cfg(feature = "tls")]
            Kind::Tls { source } => source.fmt(f),
            Kind::Start { what, source } => write!(f, "cannot start {what}: {source}"),
            Kind::Config { mistake } => write!(f, "the configuration is invalid: {mistake}"),
            Kind::AlreadyServing => {
                f.write_str("the server is already serving: one server has one service")
            }
            Kind::Signals { source } => write!(f, "cannot listen to signals: {source}"),
            Kind::Respond { source } => write!(f, "cannot send the response: {source}"),
        }
    }
}

/// Returns what the error of the system means for an address, to stand behind it.
fn reason(address: SocketAddr, kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => ", where another program or server listens",
        io::ErrorKind::AddrNotAvailable => {
            ", which is no address of this machine (0.0.0.0 and [::] stand for all of them)"
        }
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            ", because ports below 1024 need a privilege (CAP_NET_BIND_SERVICE)"
        }
        _ => "",
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `fn main() -> Result` prints this form, so it must be readable.
        write!(f, "{self}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.kind {
            Kind::Resolve { source, .. }
            | Kind::Bind { source, .. }
            | Kind::BindPath { source, .. }
            | Kind::Start { source, .. }
            | Kind::Signals { source }
            | Kind::Respond { source } => Some(source),
            #[cfg(feature = "tls")]
            Kind::Tls { source } => source.source(),
            Kind::NoListener | Kind::Config { .. } | Kind::AlreadyServing => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_system_refuses_comes_with_the_reason() {
        for (port, kind, reason) in [
            (5000, io::ErrorKind::AddrInUse, ", where another program or server listens: "),
            (5000, io::ErrorKind::AddrNotAvailable, ", which is no address of this machine (0."),
            (80, io::ErrorKind::PermissionDenied, ", because ports below 1024 need a privilege"),
            (5000, io::ErrorKind::PermissionDenied, ": permission denied"),
        ] {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let text = Error::from(Kind::Bind { address, source: kind.into() }).to_string();
            let rest = text.strip_prefix(&format!("cannot listen on {address}"));
            assert!(rest.is_some_and(|rest| rest.starts_with(reason)), "{text}");
        }
    }
}
