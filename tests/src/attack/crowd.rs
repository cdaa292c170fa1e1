//! Many connections driven by one thread. Their sockets are non-blocking: bytes that the server
//! does not take are not sent.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

/// Maximum number of connections per address. A strict server allows 512.
const PER_ADDRESS: usize = 250;

/// The receive buffer of an attacker that does not read.
const RECEIVE_BYTES: usize = 8 * 1024;

/// The pause between two attempts to send on every connection, so that an attack leaves the
/// processor to the server.
const BETWEEN_ROUNDS: Duration = Duration::from_micros(500);

/// Connections of attackers.
#[derive(Debug)]
pub struct Crowd {
    streams: Vec<TcpStream>,
}

/// Connects attacker number `index`, from another address than the good clients.
///
/// # Panics
///
/// Panics if the connection fails.
#[track_caller]
pub(super) fn connect(address: SocketAddr, index: usize) -> TcpStream {
    let from =
        Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(index / PER_ADDRESS).expect("few addresses"));
    let socket =
        Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor for an attacker");
    socket.bind(&SockAddr::from(SocketAddr::from((from, 0)))).expect("an address for an attacker");
    // Attackers that do not read have a small buffer, so that responses wait in the server.
    socket.set_recv_buffer_size(RECEIVE_BYTES).expect("an option of every system");
    socket.connect_timeout(&address.into(), crate::DEADLINE).expect("an attacker connects");
    socket.set_tcp_nodelay(true).expect("an option of every system");
    socket.set_nonblocking(true).expect("an option of every system");
    socket.into()
}

impl Crowd {
    /// Connects `count` attackers.
    #[track_caller]
    pub(super) fn connect(address: SocketAddr, count: usize) -> Self {
        Self { streams: (0..count).map(|index| connect(address, index)).collect() }
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// Sends as much of `bytes` on each connection as its socket takes at once.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.send_each(|_| bytes.as_ref())
    }

    /// As [`send`](Self::send), with different bytes for each connection.
    pub fn send_each<B: AsRef<[u8]>>(&mut self, bytes: impl Fn(usize) -> B) -> &mut Self {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            // The server may have closed the connection.
            let _ = stream.write(bytes(index).as_ref());
        }
        self
    }

    /// Sends all of `bytes` on each connection, as fast as the server takes them, for `time` at
    /// most.
    pub fn send_all_within(&mut self, time: Duration, bytes: &[u8]) -> &mut Self {
        let end = Instant::now() + time;
        let mut left: Vec<(&mut TcpStream, &[u8])> =
            self.streams.iter_mut().map(|stream| (stream, bytes)).collect();
        while !left.is_empty() && Instant::now() < end {
            left.retain_mut(|(stream, unsent)| match stream.write(unsent) {
                Ok(sent) => {
                    *unsent = unsent.get(sent..).unwrap_or_default();
                    !unsent.is_empty()
                }
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
            thread::sleep(BETWEEN_ROUNDS);
        }
        self
    }

    /// Sends `bytes` on each connection every `interval`, for `time`.
    pub fn drip(&mut self, bytes: &[u8], interval: Duration, time: Duration) -> &mut Self {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.send(bytes);
            // The pace of the attack.
            thread::sleep(interval);
        }
        self
    }

    /// Does nothing for a while.
    pub fn stays_for(&mut self, time: Duration) -> &mut Self {
        thread::sleep(time);
        self
    }

    /// Reads from each connection, and returns how often each status was received. 0 counts
    /// connections that were closed without a response. Open connections that have received nothing
    /// are not counted.
    pub fn told(&mut self) -> BTreeMap<u16, usize> {
        let mut told = BTreeMap::new();
        for stream in &mut self.streams {
            let mut start = [0; 256];
            let status = match stream.read(&mut start) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Ok(read @ 12..) => start
                    .get(9..12.min(read))
                    .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()),
                _ => None,
            };
            *told.entry(status.unwrap_or(0)).or_insert(0) += 1;
        }
        told
    }
}
