//! The TLS side of a connection without an engine, for the fuzz targets. It is not part of a build
//! without `--cfg fuzzing`.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::tls::Tls;
use crate::tls::acceptor::Acceptor;
use crate::tls::handshake::Handshake;
use crate::transport::Transport;

/// The most that is read from the socket at once during the handshake, as by the engine.
const READ_BYTES: usize = 16 * 1024;

/// Accepts TLS connections.
#[derive(Debug)]
pub struct TlsServer(Arc<Acceptor>);

/// The server's side of a TLS connection.
#[derive(Debug)]
pub struct TlsConnection {
    transport: Transport,
    handshake: Handshake,
    received: Vec<u8>,
}

impl TlsServer {
    /// Loads the certificates.
    pub fn new(tls: Tls) -> io::Result<Self> {
        Acceptor::new(tls).map(Self).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Begins a connection.
    pub fn accept(&self, socket: UnixStream) -> io::Result<TlsConnection> {
        socket.set_nonblocking(true)?;
        Ok(TlsConnection {
            transport: Transport::unix(mio::net::UnixStream::from_std(socket)),
            handshake: Handshake::new(Arc::clone(&self.0)),
            received: Vec::new(),
        })
    }
}

impl TlsConnection {
    /// Takes what has arrived. Returns whether the handshake is complete. From then on the
    /// connection can be read and written.
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ_BYTES];
        match self.transport.read(&mut buffer) {
            Ok(read) => self.received.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut output = Vec::new();
        while !self.handshake.is_complete() && self.handshake.can_advance(&self.received) {
            let result = self.handshake.advance(&mut self.received, &mut output);
            // What the last step sends is left to the session.
            if !output.is_empty() && !self.handshake.is_complete() {
                self.transport.write(&output)?;
                output.clear();
            }
            self.received.drain(..result?);
        }
        if !self.handshake.is_complete() {
            return Ok(false);
        }
        let received = std::mem::take(&mut self.received);
        let session = self.handshake.finish(received, &mut output).ok_or(ErrorKind::InvalidData)?;
        self.transport.secure(session);
        let _ = self.transport.settle();
        Ok(true)
    }

    /// Reads content. Then sends what the session has to answer, as a connection that waits does.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.transport.read(buffer);
        let _ = self.transport.settle();
        result
    }

    /// Writes content.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(bytes)
    }

    /// Returns whether a read may return content without the socket.
    pub fn has_more(&self) -> bool {
        self.transport.has_more()
    }

    /// Tells the client that nothing more is sent.
    pub fn farewell(&mut self) {
        self.transport.farewell();
    }

    /// Returns the memory of bytes that wait to be read.
    pub fn held_bytes(&self) -> usize {
        self.received.len() + self.transport.held_bytes()
    }
}
