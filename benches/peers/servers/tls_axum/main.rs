//! axum behind rustls, by axum-server, on two workers: `tls_axum ADDRESS`, with
//! `CERTIFICATE` and `KEY` in its environment.

use std::env;
use std::io;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::RawQuery;
use axum::routing::{get, post};
use axum_server::tls_rustls::RustlsConfig;
use common::{HELLO, WORKERS, address_argument, mebibytes};
use futures_util::stream;
use http_body_util::BodyExt;
use tokio::runtime;

/// A piece of `/zeros`.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

async fn plaintext() -> &'static str {
    HELLO
}

async fn zeros(RawQuery(query): RawQuery) -> Body {
    let pieces = mebibytes(&query.unwrap_or_default()) * 16;
    let piece = |_| Ok::<_, io::Error>(Bytes::from_static(&ZEROS));
    Body::from_stream(stream::iter((0..pieces).map(piece)))
}

async fn length(mut body: Body) -> String {
    let mut length = 0;
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    length.to_string()
}

async fn serve() -> io::Result<()> {
    let file = |name| env::var(name).expect("CERTIFICATE and KEY are set");
    let config = RustlsConfig::from_pem_file(file("CERTIFICATE"), file("KEY")).await?;
    let routes = Router::new()
        .route("/plaintext", get(plaintext))
        .route("/zeros", get(zeros))
        .route("/length", post(length));
    axum_server::bind_rustls(address_argument(), config).serve(routes.into_make_service()).await
}

fn main() -> io::Result<()> {
    rustls::crypto::ring::default_provider().install_default().expect("it is the first one");
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).enable_all().build()?;
    // Accepts on a worker, because the thread of `main` would be one more.
    runtime.block_on(async { tokio::spawn(serve()).await.expect("accepting does not panic") })
}
