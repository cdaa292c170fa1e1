//! The axum peer: a tokio runtime of two workers. `/sleep`, `/cpu` and `/miss` are
//! marked with `spawn_blocking`.

use std::io;
use std::thread;

use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use common::{
    BACKLOG, BLOCKING_THREADS_MAX, HELLO, MESSAGE, Message, WORKERS, address_argument, look_up,
    spin, time,
};
use tokio::net::TcpSocket;
use tokio::runtime;
use tokio::task::spawn_blocking;

async fn plaintext() -> &'static str {
    HELLO
}

async fn json() -> Json<Message> {
    Json(MESSAGE)
}

async fn sleep(RawQuery(query): RawQuery) -> &'static str {
    let length = time(&query.unwrap_or_default());
    spawn_blocking(move || thread::sleep(length)).await.expect("a sleep does not panic");
    HELLO
}

async fn sleep_unmarked(RawQuery(query): RawQuery) -> &'static str {
    thread::sleep(time(&query.unwrap_or_default()));
    HELLO
}

async fn cpu(RawQuery(query): RawQuery) -> &'static str {
    let length = time(&query.unwrap_or_default());
    spawn_blocking(move || spin(length)).await.expect("a spin does not panic");
    HELLO
}

/// All calls are marked, because nobody knows before a call whether it will block.
async fn miss(RawQuery(query): RawQuery) -> &'static str {
    let done = spawn_blocking(move || look_up(&query.unwrap_or_default()));
    done.await.expect("a look-up does not panic")
}

async fn length(body: Bytes) -> String {
    body.len().to_string()
}

async fn serve() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address_argument())?;
    let listener = socket.listen(u32::from(BACKLOG))?.tap_io(|stream| {
        // A refused option only makes this one connection slower.
        let _ = stream.set_nodelay(true);
    });
    let routes = Router::new()
        .route("/plaintext", get(plaintext))
        .route("/json", get(json))
        .route("/sleep", get(sleep))
        .route("/sleep_unmarked", get(sleep_unmarked))
        .route("/cpu", get(cpu))
        .route("/miss", get(miss))
        .route("/length", post(length));
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
