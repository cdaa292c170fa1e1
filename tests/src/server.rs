//! A server in this process.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use filoplume_runtime::tcp::TcpService;
use filoplume_runtime::{Metrics, Request, Response, RouteMetrics, Server, ServerConfig, Service};

use crate::client::Client;
use crate::wait::{DEADLINE, eventually};

/// A server on a free port of the loopback interface, which ends with its test.
#[derive(Debug)]
pub struct TestServer {
    server: Server,
}

impl TestServer {
    /// Serves with the default configuration.
    pub fn start(service: impl Service) -> Self {
        Self::with(ServerConfig::default(), service)
    }

    /// Serves with a configuration.
    pub fn with(config: ServerConfig, service: impl Service) -> Self {
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        server.spawn(service).unwrap();
        Self { server }
    }

    /// Serves a raw service.
    pub fn raw(config: ServerConfig, service: impl TcpService) -> Self {
        let server = Self::bound(config);
        server.server.spawn_tcp(service).unwrap();
        server
    }

    /// Takes a server that serves already, in a way of its own.
    pub fn of(server: Server) -> Self {
        Self { server }
    }

    /// Serves where every connection begins with a PROXY header.
    pub fn behind_proxy(config: ServerConfig, service: impl Service) -> Self {
        let builder = Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap();
        let server = builder.config(config).build().unwrap();
        server.spawn(service).unwrap();
        Self { server }
    }

    /// Binds and leaves it to the test to serve.
    pub fn bound(config: ServerConfig) -> Self {
        Self {
            server: Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap(),
        }
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    /// A new connection to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// A new connection to it, as a plain socket whose reads and writes have a deadline.
    #[track_caller]
    pub fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Its numbers.
    pub fn metrics(&self) -> Metrics {
        self.server.metrics().expect("the server serves")
    }

    /// Its numbers of one route. Fails if no call of the route was counted.
    #[track_caller]
    pub fn route(&self, name: &str) -> RouteMetrics {
        let metrics = self.metrics();
        let found = metrics.routes().iter().find(|route| route.name == name);
        found.unwrap_or_else(|| panic!("no call of {name}: {:?}", metrics.routes())).clone()
    }

    /// How often a route was moved from the event loops to the pool, or back.
    pub fn moves(&self) -> u64 {
        let metrics = self.metrics();
        metrics.routes_learned + metrics.routes_forgotten
    }

    /// Waits until no connection is left.
    #[track_caller]
    pub fn is_left_by_all(&self) {
        eventually("every connection is closed", || self.metrics().connections == 0);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.shutdown_handle().shutdown_within(Duration::ZERO);
        self.server.wait();
    }
}

/// A small site that many tests ask: it says what it understood.
///
/// `/echo` gives the content back; `/unread` answers without reading it; `/large?n=` and
/// `/stream?n=` give that many bytes; anything else gives `METHOD target`.
pub fn site(mut request: Request) -> Response {
    let mut response = Response::default();
    let number = request.query_value("n").and_then(|n| n.parse().ok()).unwrap_or(0_u64);
    match request.path() {
        "/echo" => {
            let mut content = Vec::new();
            match request.body_mut().read_to_end(&mut content) {
                Ok(_) => response.send_bytes(content),
                Err(error) => response.status(400).send_text(error.to_string()),
            };
        }
        "/unread" => {
            response.send_text("unread");
        }
        "/large" => {
            response.send_reader(io::repeat(b'x'), number);
        }
        "/stream" => {
            response.send_stream(io::repeat(b'x').take(number));
        }
        _ => {
            response.send_text(format!("{} {}", request.method(), request.target()));
        }
    }
    response
}
