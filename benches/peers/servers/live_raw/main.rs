//! The floor of a broadcast to WebSockets: `live_raw ADDRESS [THREADS]`.
//!
//! Each thread (two by default, as many as the event loops of ours) has its own listener
//! (`SO_REUSEPORT`), its own epoll and its own sockets. It answers a handshake when a read has
//! brought it, and never reads after that. Twice a second it makes one frame and calls `send` once
//! for each of its sockets, one after the other, without a lock. What a socket does not take is
//! copied and sent when epoll says that there is room. The time in a message is that at which its
//! broadcast was due, which is the same for all threads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{BACKLOG, BROADCAST_EVERY, address_argument, broadcast_text, threads_argument};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use sha1::{Digest, Sha1};
use socket2::{Domain, Socket, Type};

const LISTENER: Token = Token(usize::MAX);

/// Longer heads are not from a client of ours.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A socket with more unsent bytes belongs to a client that does not read.
const UNSENT_BYTES_MAX: usize = 16 * 1024 * 1024;

enum Client {
    /// The part of the handshake that has arrived.
    Opening(TcpStream, Vec<u8>),
    /// The bytes that the socket has not taken yet.
    Open(TcpStream, Vec<u8>),
}

struct Loop {
    poll: Poll,
    listener: TcpListener,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::from(BACKLOG))?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Returns the answer to a complete handshake (RFC 6455, 4.2.2).
fn answer(head: &[u8]) -> io::Result<String> {
    let head = String::from_utf8_lossy(head);
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then_some(value.trim())
    });
    let key = key.ok_or(ErrorKind::InvalidData)?;
    let accept =
        STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {accept}\r\n\r\n"
    ))
}

/// A text frame without a mask.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    match (text.len(), u16::try_from(text.len())) {
        (length @ ..126, _) => frame.push(u8::try_from(length).expect("it is below 126")),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        (length, Err(_)) => {
            frame.push(127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(text.as_bytes());
    frame
}

impl Client {
    /// Continues after an event. Fails if the client has gone.
    fn ready(self) -> io::Result<Self> {
        match self {
            Self::Open(mut stream, mut unsent) => {
                send(&mut stream, &mut unsent)?;
                Ok(Self::Open(stream, unsent))
            }
            Self::Opening(mut stream, mut head) => {
                let mut piece = [0; 4096];
                loop {
                    match stream.read(&mut piece) {
                        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                        Ok(read) => head.extend_from_slice(&piece[..read]),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                    if head.len() > HEAD_BYTES_MAX {
                        return Err(ErrorKind::InvalidData.into());
                    }
                }
                if !head.ends_with(b"\r\n\r\n") {
                    return Ok(Self::Opening(stream, head));
                }
                stream.write_all(answer(&head)?.as_bytes())?;
                Ok(Self::Open(stream, Vec::new()))
            }
        }
    }

    /// Sends a frame. Fails when the client has gone or does not read.
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let Self::Open(stream, unsent) = self else { return Ok(()) };
        if unsent.is_empty() {
            let sent = match stream.write(frame) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                sent => sent?,
            };
            unsent.extend_from_slice(&frame[sent..]);
        } else {
            unsent.extend_from_slice(frame);
        }
        if unsent.len() > UNSENT_BYTES_MAX {
            return Err(ErrorKind::TimedOut.into());
        }
        // There may already be room for the rest of a frame, and then no event would come.
        send(stream, unsent)
    }
}

/// Sends the unsent bytes, until the socket takes no more.
fn send(stream: &mut TcpStream, unsent: &mut Vec<u8>) -> io::Result<()> {
    let mut start = 0;
    while start < unsent.len() {
        match stream.write(&unsent[start..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            sent => start += sent?,
        }
    }
    unsent.drain(..start);
    Ok(())
}

impl Loop {
    fn new(listener: TcpListener) -> io::Result<Self> {
        let mut new = Self { poll: Poll::new()?, listener, clients: Vec::new(), free: Vec::new() };
        new.poll.registry().register(&mut new.listener, LISTENER, Interest::READABLE)?;
        Ok(new)
    }

    fn run(mut self, begun: (Instant, SystemTime)) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut next = BROADCAST_EVERY;
        loop {
            let wait = next.saturating_sub(begun.0.elapsed());
            if wait.is_zero() {
                self.broadcast(begun.1 + next);
                next += BROADCAST_EVERY;
                continue;
            }
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => result?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(index) => self.ready(index),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has already gone.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(index), interest)?;
            self.clients[index] = Some(Client::Opening(stream, Vec::new()));
        }
    }

    fn ready(&mut self, index: usize) {
        let Some(client) = self.clients[index].take() else { return };
        match client.ready() {
            Ok(client) => self.clients[index] = Some(client),
            Err(_) => self.free.push(index),
        }
    }

    fn broadcast(&mut self, due: SystemTime) {
        let frame = frame(&broadcast_text(due));
        for (index, client) in self.clients.iter_mut().enumerate() {
            if client.as_mut().is_some_and(|client| client.send(&frame).is_err()) {
                *client = None;
                self.free.push(index);
            }
        }
    }
}

fn main() -> io::Result<()> {
    let address = address_argument();
    let begun = (Instant::now(), SystemTime::now());
    // All listeners listen before any of them accepts, because the system spreads connections over
    // the listeners that exist.
    let listeners: Vec<_> =
        (0..threads_argument()).map(|_| listen(address)).collect::<io::Result<_>>()?;
    let threads: Vec<_> = listeners
        .into_iter()
        .map(|listener| thread::spawn(move || Loop::new(listener)?.run(begun)))
        .collect();
    for thread in threads {
        thread.join().expect("a loop does not panic")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_frame_tells_its_length() {
        for (length, head) in [
            (125, &[0x81, 125][..]),
            (126, &[0x81, 126, 0, 126]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let frame = frame(&"x".repeat(length));
            assert_eq!((&frame[..head.len()], frame.len()), (head, head.len() + length));
        }
    }

    #[test]
    fn a_handshake_is_answered() {
        let head = b"GET / HTTP/1.1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        assert!(answer(head).unwrap().contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(answer(b"GET / HTTP/1.1\r\n\r\n").is_err());
    }
}
