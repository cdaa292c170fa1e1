//! HTTP/1.1 as a `Protocol`.

use std::fmt;
use std::sync::Arc;

use super::{Io, Protocol, TcpService};
use crate::config::ServerConfig;
use crate::service::{Service, Site};
use crate::transport::Peer;

/// Returns HTTP/1.1 as a [`Protocol`], with `service` as its handler. Use it for a port that also
/// speaks another protocol, or for a protocol that changes to HTTP ([`Io::continue_as`]). For HTTP
/// alone use [`Server::serve`](crate::Server::serve), which saves one step per connection.
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

/// HTTP/1.1 with its service. Made by [`http()`]; clones share the service.
///
/// From its first byte the connection is like any other of an HTTP server. It has the same
/// deadlines, limits, streamed contents and upgrades, and its handlers may block.
///
/// ```
/// use filoplume_runtime::tcp::{self, Http, Io, Protocol};
/// use filoplume_runtime::{Request, Response};
///
/// /// Waits for one line of greeting with any text, then speaks HTTP.
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
    pub(super) site: Arc<Site>,
}

impl Protocol for Http {
    /// Passes the connection to the engine's HTTP, which needs more than [`Io`] offers: for
    /// example, handlers that keep a request while others are called.
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
