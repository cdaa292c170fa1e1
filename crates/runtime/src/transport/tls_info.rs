//! What the handshake of a TLS connection has established.

use std::fmt;

use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

/// The TLS session of a connection: its version, the name that the client asked for, and the
/// client's certificate. [`Request::tls`](crate::Request::tls) returns it.
///
/// ```
/// use filoplume_runtime::{Request, Response};
///
/// fn handle(request: Request) -> Response {
///     match request.tls() {
///         Some(tls) => Response::from(format!("{} for {:?}", tls.version(), tls.server_name())),
///         None => Response::new(403),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct TlsInfo {
    version: Option<ProtocolVersion>,
    server_name: Option<Box<str>>,
    protocol: Option<Box<[u8]>>,
    certificates: Box<[CertificateDer<'static>]>,
    is_resumed: bool,
}

impl TlsInfo {
    pub(crate) fn new(state: &CommonState, server_name: Option<Box<str>>) -> Self {
        let certificates = state.peer_certificates().unwrap_or_default();
        Self {
            version: state.protocol_version(),
            server_name,
            protocol: state.alpn_protocol().map(Box::from),
            certificates: certificates.iter().map(|one| one.clone().into_owned()).collect(),
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Returns the version: `TLSv1.2` or `TLSv1.3`.
    pub fn version(&self) -> &'static str {
        match self.version {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLS",
        }
    }

    /// Returns the name that the client asked for (server name indication), in lower case. The
    /// client chooses it freely: it need not be a name of this server, nor that of the request.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the protocol that was negotiated by ALPN, such as `http/1.1`. `None` if the client
    /// offered none.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }

    /// Returns the client's certificate, in DER. It is verified: it was issued by one of the
    /// configured authorities for the authentication of clients, and the client has its key.
    pub fn client_certificate(&self) -> Option<&[u8]> {
        self.client_certificates().next()
    }

    /// Returns the client's certificate and those that it sent along, in DER. Only the first one is
    /// certain to be part of the verified chain.
    pub fn client_certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(|certificate| certificate.as_ref())
    }

    /// Returns whether the session continues an earlier one, without a full handshake.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }
}

impl fmt::Debug for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsInfo")
            .field("version", &self.version())
            .field("server_name", &self.server_name)
            .field("client_certificates", &self.certificates.len())
            .field("is_resumed", &self.is_resumed)
            .finish_non_exhaustive()
    }
}
