//! The loop that all raw servers run. It waits, accepts, and lets the server handle each connection
//! that is ready.

use std::mem;
use std::os::fd::RawFd;

use crate::epoll::{self, Epoll, HUNG_UP, WRITABLE};
use crate::{listener, send};

/// How a server handles one connection, and its state of that connection.
pub trait Serve {
    type Connection: Default;

    /// Called after each wait, before the connections that it reported.
    fn woke(&mut self) {}

    /// The bytes that the socket of a connection did not take.
    fn unsent(connection: &mut Self::Connection) -> &mut Vec<u8>;

    /// Reads, answers and writes until the socket is drained. Returns `false` to close the
    /// connection.
    fn serve(&mut self, epoll: &Epoll, fd: RawFd, connection: &mut Self::Connection) -> bool;
}

/// One thread's listener and connections.
pub struct EventLoop<S: Serve> {
    epoll: Epoll,
    listener: RawFd,
    /// Indexed by file descriptor.
    connections: Vec<S::Connection>,
    server: S,
}

impl<S: Serve> EventLoop<S> {
    pub fn new(listener: RawFd, server: S) -> Self {
        Self { epoll: Epoll::open(), listener, connections: Vec::new(), server }
    }

    pub fn run(mut self) {
        self.epoll.add_listener(self.listener);
        let mut events = epoll::events();
        loop {
            let ready = self.epoll.wait(&mut events);
            self.server.woke();
            for event in ready {
                let fd = event.u64 as RawFd;
                if fd == self.listener {
                    self.accept();
                } else {
                    self.drive(fd, event.events);
                }
            }
        }
    }

    /// Accepts one connection. The listener is level-triggered, so the next wait reports it again
    /// if more are waiting.
    fn accept(&mut self) {
        let Some(fd) = listener::accept(self.listener) else { return };
        let index = fd as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, S::Connection::default);
        }
        self.epoll.add(fd);
    }

    fn drive(&mut self, fd: RawFd, events: u32) {
        let mut connection = mem::take(&mut self.connections[fd as usize]);
        let unsent = S::unsent(&mut connection);
        if events & WRITABLE != 0 && !unsent.is_empty() {
            let pending = mem::take(unsent);
            *unsent = send(fd, &pending).map_or(Vec::new(), <[u8]>::to_vec);
            if unsent.is_empty() {
                self.epoll.expect_reads(fd);
            }
        }
        let open = self.server.serve(&self.epoll, fd, &mut connection);
        if !open || (events & HUNG_UP != 0 && S::unsent(&mut connection).is_empty()) {
            listener::close(fd);
        } else {
            self.connections[fd as usize] = connection;
        }
    }
}

/// Sends, and keeps the bytes that the socket does not take until it is writable again. Returns
/// `false` if the connection is broken.
pub fn send_or_keep(epoll: &Epoll, fd: RawFd, bytes: &[u8], unsent: &mut Vec<u8>) -> bool {
    let Some(rest) = send(fd, bytes) else { return false };
    if !rest.is_empty() {
        unsent.extend_from_slice(rest);
        epoll.expect_writes(fd);
    }
    true
}
