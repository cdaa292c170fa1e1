//! Loading certificates with their keys, and choosing one by the name that a client asks for.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::files::{Source, Stamp};

/// A certificate chain and its key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    certificates: Source,
    key: Source,
}

/// The reason why certificates or keys cannot be used, with the file and what to do about it.
#[derive(Debug)]
pub(crate) struct Unusable(String);

impl Unusable {
    pub(crate) fn of(what: &str, error: &dyn std::error::Error) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

impl From<Unusable> for io::Error {
    fn from(error: Unusable) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

impl Pair {
    pub(crate) fn new(certificates: Source, key: Source) -> Self {
        Self { certificates, key }
    }

    pub(crate) fn stamps(&self) -> [Option<Stamp>; 2] {
        [self.certificates.stamp(), self.key.stamp()]
    }

    fn load(&self, provider: &CryptoProvider) -> Result<CertifiedKey, Unusable> {
        let chain = load_certificates(&self.certificates)?;
        let key = load_key(&self.key)?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            Unusable(match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                    "the key in {} does not belong to the first certificate in {}: the server's \
                     own certificate must come first, and the key must be the one it was made for",
                    self.key, self.certificates
                ),
                // rustls could read the key, so the error is not about its kind.
                error @ rustls::Error::InvalidCertificate(_) => {
                    format!("{} cannot be used: {error}", self.certificates)
                }
                error => format!(
                    "{} and {} cannot be used: {error}: keys are RSA of at least 2048 bits, ECDSA \
                     on P-256 or P-384, or Ed25519",
                    self.certificates, self.key
                ),
            })
        })
    }
}

/// Reads the certificates of a PEM file.
fn load_certificates(source: &Source) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let content = read(source)?;
    let parsed: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&content).collect();
    let chain = parsed.map_err(|error| Unusable(format!("{source} is not PEM: {error:?}")))?;
    if chain.is_empty() {
        return Err(Unusable(format!(
            "{source} has no certificate: a section that begins with -----BEGIN CERTIFICATE----- \
             is expected"
        )));
    }
    Ok(chain)
}

fn load_key(source: &Source) -> Result<PrivateKeyDer<'static>, Unusable> {
    let content = read(source)?;
    PrivateKeyDer::from_pem_slice(&content).map_err(|error| {
        let is_encrypted = content.windows(9).any(|window| window == b"ENCRYPTED");
        Unusable(if is_encrypted {
            format!(
                "the key in {source} is encrypted: decrypt it, for example with \
                 `openssl pkey -in {source} -out decrypted.pem`, and protect the file by its \
                 permissions"
            )
        } else {
            format!(
                "{source} has no private key: a section that begins with \
                 -----BEGIN PRIVATE KEY-----, RSA PRIVATE KEY or EC PRIVATE KEY is expected \
                 ({error:?})"
            )
        })
    })
}

fn read(source: &Source) -> Result<Vec<u8>, Unusable> {
    source.read().map_err(|error| {
        let advice = source.advice(&error);
        Unusable(format!("cannot read {source}: {error}{advice}"))
    })
}

/// Reads the authorities that issue the certificates of clients.
pub(crate) fn load_authorities(source: &Source) -> Result<RootCertStore, Unusable> {
    let mut store = RootCertStore::empty();
    for certificate in load_certificates(source)? {
        store.add(certificate).map_err(|error| {
            Unusable(format!("a certificate in {source} cannot be an authority: {error}"))
        })?;
    }
    Ok(store)
}

thread_local! {
    /// The name that the client of the current step asks for. rustls does not return it from an
    /// unbuffered connection, but it tells it to the resolver in the same call.
    static ASKED_FOR: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// Takes the name that the last client on this thread has asked for.
pub(crate) fn take_asked_for() -> Option<Box<str>> {
    ASKED_FOR.take()
}

/// The certificates of an address, by their names.
#[derive(Debug)]
pub(crate) struct Certificates {
    default: Arc<CertifiedKey>,
    exact: HashMap<Box<str>, Arc<CertifiedKey>>,
    /// By the part of the name after `*.`.
    wildcard: HashMap<Box<str>, Arc<CertifiedKey>>,
    /// When the first of them expires.
    expires: Option<SystemTime>,
}

impl Certificates {
    pub(crate) fn load(pairs: &[Pair], provider: &CryptoProvider) -> Result<Self, Unusable> {
        let (mut default, mut exact, mut wildcard) = (None, HashMap::new(), HashMap::new());
        let mut expires: Option<SystemTime> = None;
        for pair in pairs {
            let certified = Arc::new(pair.load(provider)?);
            let leaf = certified.cert.first().map(|leaf| Certificate::from_der(leaf));
            // rustls has accepted the certificate. It is parsed here only for its names and for
            // warnings.
            if let Some(Ok(leaf)) = leaf {
                warn_of_expiry(&leaf, &pair.certificates);
                let end = leaf.tbs_certificate.validity.not_after.to_system_time();
                expires = Some(expires.map_or(end, |other| other.min(end)));
                for name in dns_names(&leaf) {
                    let (names, name) = match name.strip_prefix("*.") {
                        Some(parent) => (&mut wildcard, parent),
                        None => (&mut exact, &*name),
                    };
                    names.entry(Box::from(name)).or_insert_with(|| Arc::clone(&certified));
                }
            }
            default.get_or_insert(certified);
        }
        let default = default.ok_or_else(|| Unusable("there is no certificate".to_owned()))?;
        Ok(Self { default, exact, wildcard, expires })
    }

    /// Returns when the first of them expires.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    fn find(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let find = |name: &str| {
            self.exact.get(name).or_else(|| self.wildcard.get(name.split_once('.')?.1))
        };
        name.and_then(find).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let found = Arc::clone(self.find(name.as_deref()));
        ASKED_FOR.set(name.map(String::into_boxed_str));
        Some(found)
    }
}

/// Returns the DNS names of a certificate, in lower case.
fn dns_names(certificate: &Certificate) -> Vec<String> {
    let names = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let names = names.map(|(_, names)| names.0).unwrap_or_default();
    let dns_name = |name| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        _ => None,
    };
    names.into_iter().filter_map(dns_name).collect()
}

/// The time before its expiry from which a certificate is warned of. Tools renew certificates a
/// month before they expire, so the renewal of this one was probably forgotten.
const EXPIRY_NEAR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Warns of a certificate that is not valid, or soon will not be. Clients refuse it as well, but
/// their errors are less clear.
fn warn_of_expiry(certificate: &Certificate, source: &Source) {
    let validity = &certificate.tbs_certificate.validity;
    let [begins, expires] = [validity.not_before, validity.not_after];
    let between = begins.to_system_time()..expires.to_system_time();
    if let Some(warning) = warning(&between, SystemTime::now()) {
        tracing::warn!(file = %source, %begins, %expires, "{warning}");
    }
}

/// Returns what is wrong with a certificate that is in use and expires at `expires`.
pub(super) fn expiry_warning(expires: SystemTime, now: SystemTime) -> Option<&'static str> {
    warning(&(SystemTime::UNIX_EPOCH..expires), now)
}

/// Returns what is wrong with the validity period of a certificate.
fn warning(valid: &Range<SystemTime>, now: SystemTime) -> Option<&'static str> {
    if valid.end < now {
        Some("the certificate has expired")
    } else if valid.start > now {
        Some("the certificate is not valid yet")
    } else if valid.end < now + EXPIRY_NEAR {
        Some("the certificate expires within 14 days")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_certificate_and_one_that_soon_will_are_warned_of() {
        let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * 24 * 60 * 60);
        let valid = day(100)..day(190);
        for (today, expected) in [
            (99, Some("the certificate is not valid yet")),
            (100, None),
            (176, None),
            (177, Some("the certificate expires within 14 days")),
            (191, Some("the certificate has expired")),
        ] {
            assert_eq!(warning(&valid, day(today)), expected, "{today}");
        }
    }

    #[cfg(feature = "tls-dev")]
    fn load(certificates: &[(&str, i32)]) -> Certificates {
        let pair = |&(name, year): &(&str, i32)| {
            let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            let certificate = Source::Memory("a certificate", certificate.pem().into());
            Pair::new(certificate, Source::Memory("a key", key.serialize_pem().into()))
        };
        let pairs: Vec<_> = certificates.iter().map(pair).collect();
        Certificates::load(&pairs, &rustls::crypto::ring::default_provider()).unwrap()
    }

    #[test]
    #[cfg(feature = "tls-dev")]
    fn the_first_certificate_is_for_clients_that_ask_for_no_known_name() {
        let certificates = load(&[("a.test", 2090), ("*.b.test", 2090)]);
        let is_same = |one, other| Arc::ptr_eq(certificates.find(one), certificates.find(other));
        assert!(is_same(None, Some("a.test")) && is_same(Some("c.test"), Some("a.test")));
        assert!(!is_same(None, Some("www.b.test")));
    }

    #[test]
    #[cfg(feature = "tls-dev")]
    fn the_certificate_that_expires_first_counts() {
        let expires = |years: &[i32]| {
            let certificates: Vec<_> = years.iter().map(|year| ("localhost", *year)).collect();
            load(&certificates).expires()
        };
        let first = expires(&[2090]);
        assert_eq!([expires(&[2090, 2095]), expires(&[2095, 2090])], [first, first]);
    }

    #[test]
    fn a_name_is_that_of_one_client_only() {
        ASKED_FOR.set(Some("a.test".into()));
        assert_eq!(take_asked_for().as_deref(), Some("a.test"));
        assert_eq!(take_asked_for(), None);
    }
}
