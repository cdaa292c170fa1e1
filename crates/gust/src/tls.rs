//! TLS on the client's sockets, by rustls. Only this module uses rustls.

mod certificates;
mod sessions;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, HandshakeKind};

pub(crate) use self::certificates::TlsFiles;
use self::certificates::{AcceptAll, identity, roots};
use self::sessions::Sessions;

/// Most bytes of requests that wait in a session for the socket.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The settings of TLS from the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    pub(crate) files: TlsFiles,
    /// Whether any certificate of the server is accepted.
    pub(crate) is_insecure: bool,
    /// Whether each handshake is a full one.
    pub(crate) is_always_full: bool,
}

/// What all sessions of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Returns TLS for connections to `host`, which is the name in the certificate of the server.
    pub(crate) fn new(host: &str, settings: &TlsSettings) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} cannot be the name of a TLS server"))?;
        let provider = Arc::new(ring::default_provider());
        let mut config = config(&provider, settings)?;
        // The only protocol that is measured. A server that does not support it refuses the
        // handshake.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = if settings.is_always_full {
            Resumption::disabled()
        } else {
            Resumption::store(Arc::new(Sessions::default()))
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// Begins a session on a connected socket.
    pub(crate) fn begin<S: Read + Write>(&self, socket: S) -> io::Result<TlsStream<S>> {
        let mut session = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(io::Error::other)?;
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Ok(TlsStream { socket, session, is_at_end: false })
    }
}

fn config(provider: &Arc<CryptoProvider>, settings: &TlsSettings) -> Result<ClientConfig, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot set up TLS: {error}");
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let builder = if settings.is_insecure {
        let verifier = Arc::new(AcceptAll(Arc::clone(provider)));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else {
        let roots = Arc::new(roots(&settings.files)?);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
        builder.with_webpki_verifier(verifier.map_err(|error| failed(&error))?)
    };
    match identity(&settings.files)? {
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| failed(&error))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// A socket with a session. Works with blocking and with non-blocking sockets.
#[derive(Debug)]
pub(crate) struct TlsStream<S> {
    socket: S,
    session: ClientConnection,
    /// The peer has closed its direction of the socket.
    is_at_end: bool,
}

impl<S> TlsStream<S> {
    /// Returns the socket.
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Returns the socket for changes of its registration.
    pub(crate) fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Returns whether the session was resumed, so that the handshake was cheap.
    pub(crate) fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns whether the socket has not taken all bytes of the session.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }
}

impl<S: Read + Write> TlsStream<S> {
    /// Continues the handshake. Returns `WouldBlock` if it has to wait for the socket.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        while self.session.is_handshaking() {
            self.flush()?;
            if !self.session.is_handshaking() {
                break;
            }
            self.fill()?;
            if self.is_at_end && self.session.is_handshaking() {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the server closed the connection during the TLS handshake",
                ));
            }
        }
        // If the end of the handshake cannot be sent now, it is sent with the first request.
        self.try_flush()
    }

    /// Sends what the session has for the socket. Returns `WouldBlock` if bytes are left.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut self.socket)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn try_flush(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(error) if is_would_block(&error) => Ok(()),
            result => result,
        }
    }

    /// Reads from the socket into the session.
    fn fill(&mut self) -> io::Result<()> {
        self.is_at_end = self.session.read_tls(&mut self.socket)? == 0;
        if let Err(error) = self.session.process_new_packets() {
            // An alert tells the server what was wrong.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, explained(&error)));
        }
        self.try_flush()
    }
}

/// Reads decrypted bytes. A read that does not fill the buffer has emptied the session and the
/// socket, as event loops with edge-triggered events need it.
///
/// A close without a `close_notify` counts as a regular close: servers do so, and each response has
/// its own end.
impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            let result = match self.session.reader().read(&mut buffer[read..]) {
                // The peer has sent `close_notify`.
                Ok(0) => return Ok(read),
                Ok(more) => {
                    read += more;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(read),
                Err(error) if !is_would_block(&error) => Err(error),
                Err(_) if self.is_at_end => return Ok(read),
                Err(_) => self.fill(),
            };
            match result {
                Ok(()) => {}
                // The next read returns the error again.
                Err(_) if read > 0 => return Ok(read),
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

/// Writes bytes. Bytes that were accepted may still be in the session: see
/// [`has_unsent`](TlsStream::has_unsent).
impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            let taken = self.session.writer().write(&bytes[written..])?;
            written += taken;
            match self.flush() {
                Ok(()) => {}
                Err(error) if is_would_block(&error) && written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }
}

/// Returns whether to wait for a socket. Blocking sockets with a timeout report either kind.
fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Returns the message of the error, with advice if there is any.
fn explained(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(_) => format!(
            "{error}: name the certificate of its authority with --cacert, or accept any with \
             --insecure"
        ),
        rustls::Error::InvalidMessage(_) => {
            format!("the server does not speak TLS on this port ({error})")
        }
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server does not offer HTTP/1.1".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
