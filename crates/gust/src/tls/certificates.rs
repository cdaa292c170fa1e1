//! The authorities that the client trusts, and its own certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The files of the command line, in PEM.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// Certificates of authorities, in place of those of the system.
    pub(crate) authorities: Option<PathBuf>,
    /// The certificate of the client.
    pub(crate) certificate: Option<PathBuf>,
    /// The key of that certificate. `None` if it is in the same file.
    pub(crate) key: Option<PathBuf>,
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the authorities whose certificates are accepted.
pub(super) fn roots(files: &TlsFiles) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &files.authorities {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        return Ok(roots);
    }
    // Some systems have certificates that cannot be parsed. They are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this system trusts no authority: name the certificate of the server's \
                    authority with --cacert, or accept any with --insecure"
            .to_owned());
    }
    Ok(roots)
}

/// Returns the certificate and the key of the client.
pub(super) fn identity(files: &TlsFiles) -> Result<Option<Identity>, String> {
    let Some(file) = &files.certificate else { return Ok(None) };
    let key = files.key.as_ref().unwrap_or(file);
    let chain = certificates(file)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("cannot read a private key in {}: {error}", key.display()))?;
    Ok(Some((chain, key)))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot read a certificate in {}: {error}", file.display())
    };
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| failed(&error))?;
    if found.is_empty() { Err(failed(&"there is none")) } else { Ok(found) }
}

/// Accepts every certificate. Signatures are checked, because a broken handshake is an error of the
/// server that a load generator has to report.
#[derive(Debug)]
pub(super) struct AcceptAll(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
