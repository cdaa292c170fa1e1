//! What a TLS address presents and demands: certificates, their keys, and authorities for client
//! certificates. Records are part of the transport (`transport/records`). The handshake is one of
//! the protocols of a connection (`protocol/handshake`).

pub(crate) mod acceptor;
mod certificates;
#[cfg(feature = "tls-dev")]
mod development;
mod files;
pub(crate) mod handshake;

use std::path::PathBuf;
use std::time::Duration;

use self::certificates::Pair;
use self::files::Source;

/// How often handshakes check for changed files by default. Tools that renew certificates do so
/// days before the old ones expire.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The protocol of the requests that the engine answers, as ALPN names it.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The certificates of an address and its demands on clients, for
/// [`ServerBuilder::bind_tls`](crate::ServerBuilder::bind_tls).
///
/// The versions are TLS 1.2 and 1.3, with the cipher suites of rustls. Sessions are resumed by
/// tickets, whose keys change every six hours. Early data (0-RTT) is refused, because it can be
/// replayed.
///
/// Files may change: a handshake checks them at most once per
/// [`reload_interval`](Self::reload_interval), and loads them if they have changed. If the new
/// files are broken, the old certificates stay in use and an error is logged.
///
/// ```no_run
/// use filoplume_runtime::{Request, Server, Tls};
///
/// let tls = Tls::from_pem_files("cert.pem", "key.pem")
///     .add_pem_files("other.example.pem", "other.example.key");
/// Server::builder()
///     .bind("0.0.0.0:80")?
///     .bind_tls("0.0.0.0:443", tls)?
///     .build()?
///     .serve(|_: Request| "Hello!")?;
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Tls {
    pairs: Vec<Pair>,
    clients: Clients,
    protocols: Vec<Vec<u8>>,
    reload_interval: Option<Duration>,
    /// Whether the certificate was made for this run of the program.
    is_development: bool,
}

/// What is demanded of clients.
#[derive(Clone, Debug)]
pub(crate) enum Clients {
    /// Clients are not asked for a certificate.
    Anonymous,
    /// Clients may present a certificate that one of these authorities has issued.
    Optional(Source),
    /// Clients must present a certificate that one of these authorities has issued.
    Required(Source),
}

impl Tls {
    /// Takes a certificate chain, the server's own certificate first, and its private key from PEM
    /// files. They are read when the address is bound.
    pub fn from_pem_files(certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self::of(Pair::new(Source::File(certificates.into()), Source::File(key.into())))
    }

    /// As [`from_pem_files`](Self::from_pem_files), with the contents of the files.
    pub fn from_pem(certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (certificates, key) = (certificates.into(), key.into());
        Self::of(Pair::new(
            Source::Memory("the certificates in memory", certificates),
            Source::Memory("the key in memory", key),
        ))
    }

    fn of(pair: Pair) -> Self {
        Self {
            pairs: vec![pair],
            clients: Clients::Anonymous,
            protocols: vec![HTTP_1_1.to_vec()],
            reload_interval: Some(RELOAD_INTERVAL),
            is_development: false,
        }
    }

    /// Returns whether the certificates may be used on addresses that other machines can reach.
    pub(crate) fn is_for_any_address(&self) -> bool {
        !self.is_development
    }

    /// Adds a certificate for other names. A client gets the first certificate that has the name
    /// that it asks for, exactly or by a wildcard. If no certificate has it, or the client sends no
    /// name, the client gets the first certificate of all.
    pub fn add_pem_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.pairs.push(Pair::new(Source::File(certificates.into()), Source::File(key.into())));
        self
    }

    /// As [`add_pem_files`](Self::add_pem_files), with the contents of the files.
    pub fn add_pem(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.pairs.append(&mut Self::from_pem(certificates, key).pairs);
        self
    }

    /// Asks clients for a certificate that one of the authorities in this PEM file has issued.
    /// Clients without a certificate are served too; those with a wrong one are not.
    /// [`TlsInfo::client_certificate`](crate::TlsInfo::client_certificate) returns the certificate.
    pub fn optional_client_certificates(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.clients = Clients::Optional(Source::File(authorities.into()));
        self
    }

    /// As [`optional_client_certificates`](Self::optional_client_certificates), but a handshake
    /// without a certificate fails.
    pub fn required_client_certificates(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.clients = Clients::Required(Source::File(authorities.into()));
        self
    }

    /// Sets the protocols that clients may choose by ALPN, in the order of preference. A client
    /// that offers only other ones is refused (RFC 7301, section 3.2). Default: `http/1.1`, which a
    /// raw TCP service should replace. Without any protocol, the offers are ignored.
    pub fn protocols<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.protocols = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how often a handshake checks whether the files have changed. `None` means that only
    /// [`Server::reload_tls`](crate::Server::reload_tls) loads them again. Default: 5 s.
    pub fn reload_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.reload_interval = interval.into();
        self
    }
}
