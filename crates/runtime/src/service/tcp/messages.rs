//! A service made of a closure over messages with a length prefix.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::{Io, Protocol, Reply, TcpService};
use crate::transport::Peer;

/// The default of [`Messages::message_bytes_max`].
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The size of the length prefix in bytes.
const PREFIX_BYTES: usize = 4;

/// Returns a service that answers each message with the result of `answer`, as a message. Each
/// message follows its length in bytes, as four bytes, the most significant first. If a peer
/// announces more than 1 MiB, the connection is closed; [`Messages::message_bytes_max`] sets
/// another bound.
///
/// ```
/// use filoplume_runtime::{Server, tcp};
/// use std::io::{Read, Write};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(tcp::messages(|message| message.len().to_string().into()))?;
///
/// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client.write_all(b"\0\0\0\x05hello")?;
/// let mut answer = [0; 5];
/// client.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"\0\0\0\x015");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn messages<F>(answer: F) -> Messages<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    Messages { answer: Arc::new(answer), message_bytes_max: MESSAGE_BYTES_MAX }
}

/// The service that [`messages()`] returns.
///
/// ```
/// use filoplume_runtime::tcp;
///
/// let service = tcp::messages(|message| message.into()).message_bytes_max(64 * 1024);
/// # drop(service);
/// ```
pub struct Messages<F> {
    answer: Arc<F>,
    message_bytes_max: usize,
}

impl<F> Messages<F> {
    /// Sets the maximum length of a message without its length prefix. Default: 1 MiB.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }
}

impl<F> TcpService for Messages<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    fn accept(&self, _peer: Peer) -> Box<dyn Protocol> {
        Box::new(MessagesProtocol {
            answer: Arc::clone(&self.answer),
            message_bytes_max: self.message_bytes_max,
        })
    }
}

struct MessagesProtocol<F> {
    answer: Arc<F>,
    message_bytes_max: usize,
}

impl<F> Protocol for MessagesProtocol<F>
where
    F: for<'a> Fn(&'a [u8]) -> Reply<'a> + Send + Sync + 'static,
{
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let turn_ends = Instant::now() + io.turn();
        let mut rest = bytes;
        while let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let length = u32::from_be_bytes(*prefix) as usize;
            if length > self.message_bytes_max {
                io.refuse_as_too_long();
                break;
            }
            let Some((message, behind)) = behind.split_at_checked(length) else { break };
            rest = behind;
            let reply = (self.answer)(message);
            if let Some(reply) = reply.bytes {
                let Ok(length) = u32::try_from(reply.len()) else {
                    tracing::error!(
                        bytes = reply.len(),
                        "an answer is too long for its length prefix"
                    );
                    io.close();
                    break;
                };
                io.send(&length.to_be_bytes());
                io.send(&reply);
            }
            if reply.closes {
                io.close();
                break;
            }
            if !rest.is_empty() && io.has_done_enough(turn_ends) {
                io.resume();
                break;
            }
        }
        bytes.len() - rest.len()
    }

    fn unread_bytes_max(&self) -> usize {
        self.message_bytes_max.saturating_add(PREFIX_BYTES)
    }
}

impl<F> fmt::Debug for Messages<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages")
            .field("message_bytes_max", &self.message_bytes_max)
            .finish_non_exhaustive()
    }
}
