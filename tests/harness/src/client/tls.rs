//! A client over TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{Client, DEADLINE, Socket, TICK};

impl Client {
    /// Connects over TLS, and completes the handshake.
    ///
    /// # Errors
    ///
    /// Those of the socket and of the session.
    pub fn try_connect_tls(
        address: SocketAddr,
        name: &str,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        Self::try_connect(address)?.try_secure(name, config)
    }

    /// Completes a TLS handshake over this connection, which must be one over TCP.
    ///
    /// # Errors
    ///
    /// Those of the socket and of the session.
    pub fn try_secure(mut self, name: &str, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let Socket::Tcp(stream) = self.socket else { panic!("not a TCP connection") };
        // The read timeout of a tick would make the handshake fail.
        stream.set_read_timeout(Some(DEADLINE))?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.sock.set_read_timeout(Some(TICK))?;
        self.socket = Socket::Tls(Box::new(stream));
        Ok(self)
    }

    /// Returns the TLS session.
    pub fn session(&self) -> &ClientConnection {
        match &self.socket {
            Socket::Tls(stream) => &stream.conn,
            _ => panic!("not a TLS connection"),
        }
    }

    /// Tells the server that nothing more is sent, and leaves the socket open.
    pub fn close_notify(&mut self) {
        let Socket::Tls(stream) = &mut self.socket else { panic!("not a TLS connection") };
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    }

    /// Changes the keys of a TLS session. The server has to do the same.
    pub fn refresh_keys(&mut self) {
        let Socket::Tls(stream) = &mut self.socket else { panic!("not a TLS connection") };
        stream.conn.refresh_traffic_keys().unwrap();
    }
}

/// Reads without sending first, because a response counts even if the server has closed since.
pub(super) fn read_session(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match stream.conn.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
        stream.conn.read_tls(&mut stream.sock)?;
        stream.conn.process_new_packets().map_err(io::Error::other)?;
    }
}
