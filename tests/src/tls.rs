//! Certificates for tests, and clients that trust them.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use filoplume_runtime::tcp::TcpService;
use filoplume_runtime::{Server, ServerConfig, Service, Tls};
use harness::{Client, DEADLINE};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};
use tempfile::TempDir;

use crate::server::TestServer;

/// An authority whose certificates lie in a folder that ends with it.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Files {
    /// Returns the settings of a server with this certificate.
    pub fn tls(&self) -> Tls {
        Tls::from_pem_files(&self.certificate, &self.key)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Makes an authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Test authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("authority.pem"), certificate.pem()).unwrap();
        let certificate = certificate.der().clone();
        Self { folder, issuer: Issuer::new(params, key), certificate }
    }

    /// Returns the file with the authority's own certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Issues a certificate for a server with these names. The files are called `name`, and replace
    /// earlier ones.
    pub fn issue(&self, name: &str, dns_names: &[&str]) -> Files {
        let names: Vec<String> = dns_names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, &params)
    }

    /// As [`issue`](Self::issue), with the day on which the certificate expires.
    pub fn issue_until(
        &self,
        name: &str,
        dns_name: &str,
        (year, month, day): (i32, u8, u8),
    ) -> Files {
        let mut params = CertificateParams::new(vec![dns_name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        self.sign(name, &params)
    }

    /// Issues a certificate for a client.
    pub fn issue_client(&self, name: &str) -> Files {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, &params)
    }

    fn sign(&self, name: &str, params: &CertificateParams) -> Files {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let files = Files { certificate: file("pem"), key: file("key") };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// Returns a client's settings that trust this authority, for one version.
    pub fn client(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        self.builder(version).with_no_client_auth()
    }

    /// As [`client`](Self::client), for a client with a certificate.
    pub fn client_with(
        &self,
        version: &'static SupportedProtocolVersion,
        files: &Files,
    ) -> ClientConfig {
        let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        self.builder(version).with_client_auth_cert(certificates, key).unwrap()
    }

    /// As [`client`](Self::client), with some cipher suites only.
    pub fn client_with_suites(
        &self,
        version: &'static SupportedProtocolVersion,
        is_offered: fn(CipherSuite) -> bool,
    ) -> ClientConfig {
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites.retain(|suite| is_offered(suite.suite()));
        self.builder_of(version, provider).with_no_client_auth()
    }

    fn builder(
        &self,
        version: &'static SupportedProtocolVersion,
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        self.builder_of(version, rustls::crypto::ring::default_provider())
    }

    fn builder_of(
        &self,
        version: &'static SupportedProtocolVersion,
        provider: CryptoProvider,
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
    }
}

/// A server over TLS, with a certificate for `localhost`.
#[derive(Debug)]
pub struct TlsServer {
    /// The server.
    pub server: TestServer,
    /// The authority of its certificate.
    pub authority: Authority,
    config: Arc<ClientConfig>,
}

impl TlsServer {
    /// Starts a server.
    pub fn start(service: impl Service) -> Self {
        Self::with(ServerConfig::default(), service)
    }

    /// Starts a server with a configuration.
    pub fn with(config: ServerConfig, service: impl Service) -> Self {
        let authority = Authority::new();
        let server = bound(config, authority.issue("localhost", &["localhost"]).tls());
        server.spawn(service).unwrap();
        Self::of(server, authority)
    }

    /// Starts a server with a raw service.
    pub fn raw(config: ServerConfig, service: impl TcpService) -> Self {
        let authority = Authority::new();
        let server = bound(config, authority.issue("localhost", &["localhost"]).tls());
        server.spawn_tcp(service).unwrap();
        Self::of(server, authority)
    }

    /// Wraps a server that is serving already.
    pub fn of(server: Server, authority: Authority) -> Self {
        let config = Arc::new(authority.client(&rustls::version::TLS13));
        Self { server: TestServer::of(server), authority, config }
    }

    /// Connects a client.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.client_as(&self.config)
    }

    /// Connects a client with these settings.
    #[track_caller]
    pub fn client_as(&self, config: &Arc<ClientConfig>) -> Client {
        Client::try_connect_tls(self.server.address(), "localhost", config)
            .unwrap_or_else(|error| panic!("no session: {error}"))
    }
}

/// Connects over TLS to `localhost` at this address, with the timeouts of tests.
pub fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.set_write_timeout(Some(DEADLINE)).unwrap();
    socket.set_nodelay(true).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket)
}

/// Binds a server with these TLS settings.
pub fn bound(config: ServerConfig, tls: Tls) -> Server {
    Server::builder().bind_tls("127.0.0.1:0", tls).unwrap().config(config).build().unwrap()
}
