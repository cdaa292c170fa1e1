//! Many connections in one hand. None of their sockets blocks: what a peer does not take is not
//! sent.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

/// Of one address there are never more: a strict server lets it have 512.
const PER_ADDRESS: usize = 250;

/// What the system may receive for an attacker that does not read.
const RECEIVE_BYTES: usize = 8 * 1024;

/// Connections of attackers.
#[derive(Debug)]
pub struct Crowd {
    streams: Vec<TcpStream>,
}

/// A connection of attacker number `index`, whose address is not that of the good clients.
///
/// # Panics
///
/// If it cannot be had.
#[track_caller]
pub(super) fn connect(address: SocketAddr, index: usize) -> TcpStream {
    let from =
        Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(index / PER_ADDRESS).expect("few addresses"));
    let socket =
        Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor for an attacker");
    socket.bind(&SockAddr::from(SocketAddr::from((from, 0)))).expect("an address for an attacker");
    // Who does not read has little room: what is sent to it waits in the server.
    socket.set_recv_buffer_size(RECEIVE_BYTES).expect("an option of every system");
    socket.connect_timeout(&address.into(), crate::DEADLINE).expect("an attacker connects");
    socket.set_tcp_nodelay(true).expect("an option of every system");
    socket.set_nonblocking(true).expect("an option of every system");
    socket.into()
}

impl Crowd {
    /// Connects so many.
    #[track_caller]
    pub(super) fn connect(address: SocketAddr, count: usize) -> Self {
        Self { streams: (0..count).map(|index| connect(address, index)).collect() }
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.streams.len()
    }

    /// Has each send as much of `bytes` as its socket takes at once.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.send_each(|_| bytes.as_ref())
    }

    /// The same, with something else for each.
    pub fn send_each<B: AsRef<[u8]>>(&mut self, bytes: impl Fn(usize) -> B) -> &mut Self {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            // Who was ended already has nothing more to send.
            let _ = stream.write(bytes(index).as_ref());
        }
        self
    }

    /// Has each send all of `bytes`, as fast as the server takes them, and for `time` at most.
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
            thread::sleep(Duration::from_micros(500));
        }
        self
    }

    /// Has each send `bytes` every `interval`, for `time`.
    pub fn drip(&mut self, bytes: &[u8], interval: Duration, time: Duration) -> &mut Self {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.send(bytes);
            thread::sleep(interval);
        }
        self
    }

    /// Does nothing for a while.
    pub fn stays_for(&mut self, time: Duration) -> &mut Self {
        thread::sleep(time);
        self
    }

    /// Reads what has come to each, and returns how often each status did; 0 is for an end without
    /// a word. Whoever was told nothing yet is not counted.
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
