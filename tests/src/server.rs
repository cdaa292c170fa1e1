//! Running a server in this process.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use filoplume_runtime::tcp::TcpService;
use filoplume_runtime::{Metrics, Request, Response, RouteMetrics, Server, ServerConfig, Service};
use harness::{Client, DEADLINE, eventually};

/// A server on a free port of the loopback interface. It ends with its test.
#[derive(Debug)]
pub struct TestServer {
    server: Server,
}

impl TestServer {
    /// Starts a server with the default configuration.
    pub fn start(service: impl Service) -> Self {
        Self::with(ServerConfig::default(), service)
    }

    /// Starts a server with a configuration.
    pub fn with(config: ServerConfig, service: impl Service) -> Self {
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        server.spawn(service).unwrap();
        Self { server }
    }

    /// Starts a server with a raw service.
    pub fn raw(config: ServerConfig, service: impl TcpService) -> Self {
        let server = Self::bound(config);
        server.server.spawn_tcp(service).unwrap();
        server
    }

    /// Wraps a server that is serving already.
    pub fn of(server: Server) -> Self {
        Self { server }
    }

    /// Starts a server that expects a PROXY header on every connection.
    pub fn behind_proxy(config: ServerConfig, service: impl Service) -> Self {
        let builder = Server::builder().bind("127.0.0.1:0").unwrap().proxy_protocol().unwrap();
        let server = builder.config(config).build().unwrap();
        server.spawn(service).unwrap();
        Self { server }
    }

    /// Binds a server that does not serve yet.
    pub fn bound(config: ServerConfig) -> Self {
        Self {
            server: Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap(),
        }
    }

    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    /// Connects a client to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Connects a plain socket with read and write timeouts to it.
    #[track_caller]
    pub fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Returns its metrics.
    pub fn metrics(&self) -> Metrics {
        self.server.metrics().expect("the server serves")
    }

    /// Returns its metrics of one route. Panics if no call of the route was counted.
    #[track_caller]
    pub fn route(&self, name: &str) -> RouteMetrics {
        let metrics = self.metrics();
        let found = metrics.routes().iter().find(|route| route.name == name);
        found.unwrap_or_else(|| panic!("no call of {name}: {:?}", metrics.routes())).clone()
    }

    /// Returns how often a route was moved from the event loops to the pool or back.
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

/// The handler of many tests. It reports the request that it received.
///
/// `/echo` returns the content. `/unread` responds without reading it. `/large?n=` and `/stream?n=`
/// return that many bytes. All other paths return `METHOD target`.
pub fn site(mut request: Request) -> Response {
    let mut response = Response::default();
    let number = request.query_value("n").and_then(|n| n.parse().ok()).unwrap_or(0_u64);
    match request.path() {
        "/echo" => {
            let mut content = Vec::new();
            match request.body_mut().read_to_end(&mut content) {
                Ok(_) => response.set_bytes(content),
                Err(error) => response.set_status(400).set_text(error.to_string()),
            };
        }
        "/unread" => {
            response.set_text("unread");
        }
        "/large" => {
            response.set_reader(io::repeat(b'x'), number);
        }
        "/stream" => {
            response.set_stream(io::repeat(b'x').take(number));
        }
        _ => {
            response.set_text(format!("{} {}", request.method(), request.target()));
        }
    }
    response
}
