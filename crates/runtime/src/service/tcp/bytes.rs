//! A service made of a closure over bytes as they arrive.

use std::fmt;
use std::sync::Arc;

use super::{Io, Protocol, Reply, TcpService};
use crate::transport::Peer;

/// Returns a service that answers each piece of input with the result of `answer`. The network
/// decides how the bytes are split, so use this where messages do not matter: an echo, a counter, a
/// sink.
///
/// ```
/// use filoplume_runtime::{Server, tcp};
/// use std::io::{Read, Write};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(tcp::bytes(|bytes| bytes.into()))?;
///
/// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client.write_all(b"echo")?;
/// let mut echo = [0; 4];
/// client.read_exact(&mut echo)?;
/// assert_eq!(&echo, b"echo");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bytes<F>(answer: F) -> Bytes<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    Bytes { answer: Arc::new(answer) }
}

/// The service that [`bytes()`] returns.
///
/// ```
/// use filoplume_runtime::tcp::{self, TcpService};
///
/// fn sink() -> impl TcpService {
///     tcp::bytes(|_| tcp::Reply::none())
/// }
/// # drop(sink());
/// ```
pub struct Bytes<F> {
    answer: Arc<F>,
}

impl<F> TcpService for Bytes<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    fn accept(&self, _peer: Peer) -> Box<dyn Protocol> {
        Box::new(BytesProtocol { answer: Arc::clone(&self.answer) })
    }
}

struct BytesProtocol<F> {
    answer: Arc<F>,
}

impl<F> Protocol for BytesProtocol<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    #[inline]
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let reply = (self.answer)(bytes);
        if let Some(reply) = reply.bytes {
            io.send(&reply);
        }
        if reply.closes {
            io.close();
        }
        bytes.len()
    }
}

impl<F> fmt::Debug for Bytes<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bytes")
    }
}
