//! `gust serve` and `gust echo`: small servers on Filoplume's engine, as targets of a run.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use filoplume_runtime::{Request, Response, Server, ServerConfig, tcp};

use crate::print;

/// Largest content for `/echo`, which is buffered before it is sent back.
const ECHO_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Longest pause of `/sleep`.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Serves HTTP until SIGINT or SIGTERM.
pub(crate) fn serve(listen: &str, threads: Option<usize>) -> Result<(), String> {
    let server = start(listen, threads)?;
    if let Some(address) = server.local_addr() {
        announce(address);
    }
    server.incoming().for_each(answer).map_err(|error| format!("cannot serve: {error}"))
}

/// Echoes what is received until SIGINT or SIGTERM.
pub(crate) fn echo(listen: &str, threads: Option<usize>) -> Result<(), String> {
    let server = start(listen, threads)?;
    if let Some(address) = server.local_addr() {
        print(&format!("listening on tcp://{address}\n"));
    }
    server
        .serve_tcp(tcp::bytes(|bytes| bytes.into()))
        .map_err(|error| format!("cannot serve: {error}"))
}

fn start(listen: &str, threads: Option<usize>) -> Result<Server, String> {
    let address = match listen.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => listen.to_owned(),
    };
    let mut config = ServerConfig::default();
    if let Some(threads) = threads.filter(|&threads| threads > 0) {
        config = config.event_loops(threads);
    }
    let server = Server::builder().bind(address).and_then(|builder| builder.config(config).build());
    let server = server.map_err(|error| format!("cannot serve: {error}"))?;
    server.shutdown_on_signals().map_err(|error| format!("cannot serve: {error}"))?;
    Ok(server)
}

fn announce(address: SocketAddr) {
    print(&format!(
        "listening on http://{address}\n  GET /              13 bytes of text\n  GET \
         /bytes?n=1000  this many bytes\n  GET /sleep?ms=10   a response after this time\n  POST \
         /echo         the content of the request\n"
    ));
}

fn answer(request: Request) -> Response {
    let mut response = Response::default();
    match request.path() {
        "/echo" => return echoed(request),
        "/bytes" => response.set_reader(io::repeat(b'x'), number(&request, "n", 1000)),
        "/sleep" => {
            std::thread::sleep(Duration::from_millis(number(&request, "ms", 10)).min(SLEEP_MAX));
            response.set_text("slept")
        }
        "/" => response.set_text("Hello, World!"),
        _ => response.set_status(404).set_text("not found"),
    };
    response
}

fn echoed(request: Request) -> Response {
    let mut response = Response::default();
    match request.into_body().into_bytes(ECHO_BYTES_MAX) {
        Ok(bytes) => response.set_bytes(bytes),
        Err(error) => response.set_status(400).set_text(error.to_string()),
    };
    response
}

fn number(request: &Request, name: &str, default: u64) -> u64 {
    request.query_value(name).and_then(|value| value.parse().ok()).unwrap_or(default)
}
