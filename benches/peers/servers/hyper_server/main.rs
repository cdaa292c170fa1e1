//! The hyper peer: a tokio runtime of two workers. `/sleep`, `/cpu` and `/miss` are
//! marked with `spawn_blocking`.

use std::convert::Infallible;
use std::io;
use std::thread;

use common::{
    BACKLOG, BLOCKING_THREADS_MAX, HELLO, WORKERS, address_argument, look_up, message_json, spin,
    time,
};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio::runtime;
use tokio::task::{spawn, spawn_blocking};

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let query = request.uri().query().unwrap_or("");
    let response = match (request.method(), request.uri().path()) {
        (&Method::GET, "/plaintext") => text(HELLO),
        (&Method::GET, "/json") => with_type("application/json", message_json()),
        (&Method::GET, "/sleep") => {
            let length = time(query);
            spawn_blocking(move || thread::sleep(length)).await.expect("a sleep does not panic");
            text(HELLO)
        }
        (&Method::GET, "/sleep_unmarked") => {
            thread::sleep(time(query));
            text(HELLO)
        }
        (&Method::GET, "/cpu") => {
            let length = time(query);
            spawn_blocking(move || spin(length)).await.expect("a spin does not panic");
            text(HELLO)
        }
        // All calls are marked, because nobody knows before a call whether it will block.
        (&Method::GET, "/miss") => {
            let query = query.to_owned();
            text(spawn_blocking(move || look_up(&query)).await.expect("a look-up does not panic"))
        }
        (&Method::POST, "/length") => match length(request.into_body()).await {
            Ok(length) => text(length.to_string()),
            Err(_) => status(StatusCode::BAD_REQUEST),
        },
        _ => status(StatusCode::NOT_FOUND),
    };
    Ok(response)
}

/// The length of the body, which is not kept.
async fn length(mut body: Incoming) -> hyper::Result<usize> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(length)
}

fn text(content: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type("text/plain", content)
}

fn with_type(content_type: &'static str, content: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(content.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

async fn serve() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address_argument())?;
    let listener = socket.listen(u32::from(BACKLOG))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // The answers to pipelined requests leave in one write.
        let connection = http1::Builder::new()
            .pipeline_flush(true)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        spawn(async move {
            // The client closed the connection, or did not speak HTTP. Only this connection ends.
            let _ = connection.await;
        });
    }
}

fn main() -> io::Result<()> {
    runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()?
        .block_on(serve())
}
