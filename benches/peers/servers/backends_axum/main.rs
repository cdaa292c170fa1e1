//! axum with the calls of `backends`, each marked with `spawn_blocking`.

use std::io;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::routing::get;
use axum::serve::ListenerExt;
use backends::{Call, ROUTES};
use common::{BACKLOG, BLOCKING_THREADS_MAX, HELLO, WORKERS, address_argument};
use tokio::net::TcpSocket;
use tokio::runtime;
use tokio::task::spawn_blocking;

async fn answer(call: Call, query: Option<String>) -> Result<String, (StatusCode, String)> {
    let done = spawn_blocking(move || call(&query.unwrap_or_default()));
    let content = done.await.expect("a call does not panic");
    content.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

async fn serve() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address_argument())?;
    let listener = socket.listen(u32::from(BACKLOG))?.tap_io(|stream| {
        // A refused option only makes this one connection slower.
        let _ = stream.set_nodelay(true);
    });
    let mut routes = Router::new().route("/plaintext", get(async || HELLO));
    for &(path, call) in ROUTES {
        routes = routes.route(path, get(move |RawQuery(query): RawQuery| answer(call, query)));
    }
    axum::serve(listener, routes).await
}

fn main() -> io::Result<()> {
    runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()?
        .block_on(serve())
}
