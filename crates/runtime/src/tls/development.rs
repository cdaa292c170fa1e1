//! A self-signed certificate, for programs in development.

use std::fmt::Write as _;
use std::io;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;

use super::Tls;

/// The names under which a program in development is reached.
const NAMES: [&str; 4] = ["localhost", "*.localhost", "127.0.0.1", "::1"];

impl Tls {
    /// Makes a self-signed certificate for `localhost`, `127.0.0.1` and `::1`, for programs in
    /// development. Browsers warn of it. Its SHA-256 fingerprint, which they show, is logged. It is
    /// different each time, and only addresses of this machine can be bound with it.
    ///
    /// ```
    /// use filoplume_runtime::{Server, Tls};
    ///
    /// let server = Server::builder().bind_tls("127.0.0.1:0", Tls::development()?)?.build()?;
    /// let public = Server::builder().bind_tls("0.0.0.0:0", Tls::development()?);
    /// assert!(public.unwrap_err().to_string().contains("only for addresses of this machine"));
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the system returns no random numbers.
    pub fn development() -> io::Result<Self> {
        let names = NAMES.map(str::to_owned);
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, "Filoplume development certificate");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        tracing::warn!(
            sha256 = fingerprint(certificate.der()),
            "a development certificate is in use: browsers warn of it"
        );
        let mut tls = Self::from_pem(certificate.pem(), key.serialize_pem());
        tls.is_development = true;
        Ok(tls)
    }
}

/// Returns the SHA-256 hash of a certificate, as browsers show it.
fn fingerprint(certificate: &[u8]) -> String {
    let hash = TLS13_AES_128_GCM_SHA256.tls13().map(|suite| suite.common.hash_provider);
    let mut shown = String::new();
    for byte in hash.map(|hash| hash.hash(certificate)).iter().flat_map(|hash| hash.as_ref()) {
        let colon = if shown.is_empty() { "" } else { ":" };
        // Writing to a string cannot fail.
        let _ = write!(shown, "{colon}{byte:02X}");
    }
    shown
}
