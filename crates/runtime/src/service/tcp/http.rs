//! HTTP/1.1 as one protocol among others.

use std::fmt;
use std::sync::Arc;

use super::{Io, Protocol, TcpService};
use crate::config::ServerConfig;
use crate::service::{Service, Site};
use crate::transport::Peer;

/// Returns HTTP/1.1, answered by `service`, as a [`Protocol`]: for a port that speaks something
/// else as well, or a protocol that becomes HTTP midway ([`Io::continue_as`]). A server of HTTP
/// alone has [`Server::serve`](crate::Server::serve), which saves each connection the step.
///
/// ```
/// use filoplume_runtime::{Request, Response, Server, tcp};
/// use std::io::{Read, Write};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(tcp::http(|_request: Request| Response::new(204)))?;
///
/// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client
///     .write_all(b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 204 No Content\r\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn http(service: impl Service) -> Http {
    Http { site: Arc::new(Site::new(service)) }
}

/// HTTP/1.1 and the service that answers it. Made by [`http()`]; clones share the service.
///
/// From its first byte on the connection is one like any other of a server of HTTP: with its
/// deadlines and limits, with contents that are streamed, upgrades, and handlers that may block.
///
/// ```
/// use filoplume_runtime::tcp::{self, Http, Io, Protocol};
/// use filoplume_runtime::{Request, Response};
///
/// /// Waits for a line of greeting, whatever it says, and is a server of HTTP from then on.
/// struct Greeted {
///     site: Http,
/// }
///
/// impl Protocol for Greeted {
///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
///         let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return 0 };
///         io.continue_as(self.site.clone());
///         end + 1
///     }
/// }
///
/// let greeted = Greeted { site: tcp::http(|_request: Request| Response::new(204)) };
/// ```
#[derive(Clone)]
pub struct Http {
    site: Arc<Site>,
}

impl Protocol for Http {
    /// Has the engine go on: its HTTP needs what [`Io`] does not offer, such as handlers that hold
    /// a request for as long as they like while others are called.
    fn open(&mut self, io: &mut Io<'_>) {
        io.continue_as_http(Arc::clone(&self.site));
    }

    fn data(&mut self, _bytes: &[u8], _io: &mut Io<'_>) -> usize {
        0
    }
}

impl TcpService for Http {
    fn accept(&self, _peer: Peer) -> Box<dyn Protocol> {
        Box::new(self.clone())
    }

    fn config(&self) -> Option<ServerConfig> {
        self.site.service.config()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}
