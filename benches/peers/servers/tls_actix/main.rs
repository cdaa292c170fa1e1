//! actix-web behind rustls, on two workers: `tls_actix ADDRESS`, with
//! `CERTIFICATE` and `KEY` in its environment.

use std::env;
use std::io;
use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::web::{self, Bytes, Payload};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Result, rt};
use common::{BACKLOG, HELLO, WORKERS, address_argument, mebibytes};
use futures_util::{StreamExt, stream};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Longer than any scenario keeps an idle connection: actix's default of 5 s would close them.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A piece of `/zeros`.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

async fn plaintext() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body(HELLO)
}

async fn zeros(request: HttpRequest) -> HttpResponse {
    let pieces = mebibytes(request.query_string()) * 16;
    let piece = |_| Ok::<_, io::Error>(Bytes::from_static(&ZEROS));
    HttpResponse::Ok().streaming(stream::iter((0..pieces).map(piece)))
}

async fn length(mut payload: Payload) -> Result<String> {
    let mut length = 0;
    while let Some(piece) = payload.next().await {
        length += piece?.len();
    }
    Ok(length.to_string())
}

fn config() -> ServerConfig {
    let file = |name| env::var(name).expect("CERTIFICATE and KEY are set");
    let certificates =
        CertificateDer::pem_file_iter(file("CERTIFICATE")).expect("a readable certificate");
    let certificates = certificates.map(|one| one.expect("a certificate in PEM")).collect();
    let key = PrivateKeyDer::from_pem_file(file("KEY")).expect("a key in PEM");
    rustls::crypto::ring::default_provider().install_default().expect("it is the first one");
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("a key for the certificate")
}

fn main() -> io::Result<()> {
    let routes = || {
        App::new()
            .route("/plaintext", web::get().to(plaintext))
            .route("/zeros", web::get().to(zeros))
            .route("/length", web::post().to(length))
    };
    let server = HttpServer::new(routes)
        .workers(WORKERS)
        .backlog(u32::from(BACKLOG))
        .keep_alive(KEEP_ALIVE)
        .bind_rustls_0_23(address_argument(), config())?;
    rt::System::new().block_on(server.run())
}
