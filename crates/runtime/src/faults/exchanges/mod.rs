//! Small exchanges between a client and a server in which calls fail. The server continues after
//! each fault, and peers do not notice a fault after which the server can repeat the call.
//!
//! The exchanges and the server are here. Each submodule has the faults of one kind.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accepts;
mod bodies;
mod transfers;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{Call, Fault, Plan};
use crate::{Plan as RequestPlan, Request, Response, Server, ServerConfig, Service, tcp};

/// How long a test waits for an event that is due soon.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a client sends, in pieces, and what it does after that.
#[derive(Clone, Copy)]
struct Exchange {
    pieces: &'static [&'static str],
    /// The number of bytes that are sent after the pieces: none, or more than fit any buffer.
    filling: usize,
    serves: Serves,
}

#[derive(Clone, Copy)]
enum Serves {
    Http,
    /// As [`Http`](Self::Http), but the filling is sent after an interim response.
    HttpWithContinue,
    Echo,
}

/// The kind of socket.
#[derive(Clone, Copy, Debug)]
enum Over {
    Tcp,
    Unix,
}

/// A server and its address.
struct Running {
    server: Server,
    /// The path of its socket, if it is a Unix socket.
    path: Option<PathBuf>,
}

const PLAIN: Exchange = Exchange {
    pieces: &["GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const KEPT: Exchange = Exchange {
    pieces: &[
        "GET /a HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /b HTTP/1.1\r\nHo",
        "st: t\r\nConnection: close\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const POST: Exchange = Exchange {
    pieces: &[
        "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 11\r\n\r\nhello",
        " world",
    ],
    filling: 0,
    serves: Serves::Http,
};
const CHUNKED: Exchange = Exchange {
    pieces: &[
        "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: \
         chunked\r\n\r\n5\r\nhel",
        "lo\r\n6\r\n world\r\n0\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const LONG_POST: Exchange = Exchange {
    pieces: &[
        "POST /length HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n",
    ],
    filling: 300_000,
    serves: Serves::Http,
};
const STREAMED_POST: Exchange = Exchange {
    pieces: &[
        "POST /streamed HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n",
    ],
    filling: 300_000,
    serves: Serves::Http,
};
const PIPELINED: Exchange = Exchange {
    pieces: &["GET /1 HTTP/1.1\r\nHost: t\r\n\r\nGET /2 HTTP/1.1\r\nHost: t\r\n\r\nPOST /echo \
               HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n\r\nGET /4 HTTP/1.1\r\nHost: \
               t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const DISPATCHED: Exchange = Exchange {
    pieces: &[
        "GET /pool/1 HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /pool/2 HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /pool/3 HTTP/1.1\r\nHost: t\r\n\r\nGET /pool/4 HTTP/1.1\r\nHost: t\r\nConnection: \
         close\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const STREAMED: Exchange = Exchange {
    pieces: &["GET /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const LARGE: Exchange = Exchange {
    pieces: &["GET /large HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const CONTINUED: Exchange = Exchange {
    pieces: &[
        "POST /streamed HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\
         Connection: close\r\n\r\n",
    ],
    filling: 100_000,
    serves: Serves::HttpWithContinue,
};
const CONTINUED_BEHIND: Exchange = Exchange {
    pieces: &["GET /1 HTTP/1.1\r\nHost: t\r\n\r\nPOST /streamed HTTP/1.1\r\nHost: t\r\nExpect: \
               100-continue\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n"],
    filling: 100_000,
    serves: Serves::HttpWithContinue,
};
const CONTINUED_COLLECTED: Exchange = Exchange {
    pieces: &[
        "POST /length HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\
         Connection: close\r\n\r\n",
    ],
    filling: 100_000,
    serves: Serves::HttpWithContinue,
};
const REFUSED: Exchange = Exchange { pieces: &["BAD\r\n\r\n"], filling: 0, serves: Serves::Http };
const ECHO: Exchange =
    Exchange { pieces: &["hello", " ", "world"], filling: 0, serves: Serves::Echo };
const LONG_ECHO: Exchange = Exchange { pieces: &[], filling: 300_000, serves: Serves::Echo };

const ALL: [(&str, Exchange); 16] = [
    ("plain", PLAIN),
    ("kept", KEPT),
    ("post", POST),
    ("chunked", CHUNKED),
    ("long post", LONG_POST),
    ("streamed post", STREAMED_POST),
    ("pipelined", PIPELINED),
    ("dispatched", DISPATCHED),
    ("streamed", STREAMED),
    ("large", LARGE),
    ("continued", CONTINUED),
    ("continued behind another", CONTINUED_BEHIND),
    ("continued and collected", CONTINUED_COLLECTED),
    ("refused", REFUSED),
    ("echo", ECHO),
    ("long echo", LONG_ECHO),
];

struct Site;

impl Service for Site {
    fn plan(&self, request: &mut Request) -> RequestPlan {
        match request.path() {
            "/streamed" => RequestPlan::new().streamed(),
            path if path.starts_with("/pool") => RequestPlan::new().on_pool(),
            _ => RequestPlan::new(),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        let mut response = Response::default();
        match request.path() {
            "/echo" => {
                let mut content = Vec::new();
                if request.body_mut().read_to_end(&mut content).is_err() {
                    return Response::new(400);
                }
                response.set_bytes(content);
            }
            "/length" | "/streamed" => match io::copy(request.body_mut(), &mut io::sink()) {
                Ok(length) => _ = response.set_text(length.to_string()),
                Err(_) => return Response::new(400),
            },
            "/stream" => {
                response.set_stream(io::repeat(b's').take(200_000));
            }
            path if path.starts_with("/breaks/") => {
                let reads = path["/breaks/".len()..].parse().unwrap();
                response.set_stream(Breaks(reads));
            }
            "/large" => {
                response.set_bytes(vec![b'l'; 500_000]);
            }
            path => {
                let text = path.to_owned();
                response.set_text(text);
            }
        }
        response
    }
}

/// A reader that fails in the middle of a content.
struct Breaks(usize);

impl Read for Breaks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        let length = buffer.len().min(1000);
        buffer[..length].fill(b's');
        Ok(length)
    }
}

/// A connected socket.
trait Peer: Read + Write + Send {
    fn other_handle(&self) -> Box<dyn Peer>;
    fn end(&self, directions: Shutdown);
}

macro_rules! peer {
    ($socket:ty) => {
        impl Peer for $socket {
            fn other_handle(&self) -> Box<dyn Peer> {
                self.set_read_timeout(Some(PATIENCE)).unwrap();
                self.set_write_timeout(Some(PATIENCE)).unwrap();
                Box::new(self.try_clone().unwrap())
            }

            fn end(&self, directions: Shutdown) {
                let _ = self.shutdown(directions);
            }
        }
    };
}

peer!(TcpStream);
peer!(UnixStream);

impl Running {
    fn connect(&self) -> Box<dyn Peer> {
        if let Some(path) = &self.path {
            return Box::new(UnixStream::connect(path).unwrap());
        }
        let socket = TcpStream::connect(self.server.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        Box::new(socket)
    }

    fn end(&self) {
        self.server.shutdown_handle().shutdown_within(Duration::ZERO);
        self.server.wait();
    }
}

impl Exchange {
    fn server(self, plan: &Arc<Plan>, over: Over) -> Running {
        let mut config = ServerConfig::default().event_loops(1);
        config.faults = Some(Arc::clone(plan));
        let (builder, path) = match over {
            Over::Tcp => (Server::builder().bind("127.0.0.1:0").unwrap(), None),
            Over::Unix => {
                static NUMBER: AtomicU64 = AtomicU64::new(0);
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let name = format!("filoplume-faults-{}-{number}", std::process::id());
                let path = std::env::temp_dir().join(name);
                (Server::builder().bind_unix(&path).unwrap(), Some(path))
            }
        };
        let server = builder.config(config).build().unwrap();
        match self.serves {
            Serves::Http | Serves::HttpWithContinue => server.spawn(Site).unwrap(),
            Serves::Echo => server.spawn_tcp(tcp::bytes(|bytes| bytes.into())).unwrap(),
        }
        Running { server, path }
    }

    /// Sends everything. Returns the bytes received until the connection ended, and how it ended.
    fn run(self, running: &Running) -> (String, io::Result<()>) {
        let mut socket = running.connect();
        let mut writer = socket.other_handle();
        let (tells, is_told) = mpsc::channel();
        let sends = thread::spawn(move || {
            let sent = (|| {
                for piece in self.pieces {
                    writer.write_all(piece.as_bytes())?;
                    // Usually makes the pieces arrive one by one. The test does not depend on it.
                    thread::yield_now();
                }
                if matches!(self.serves, Serves::HttpWithContinue) && is_told.recv().is_err() {
                    return Ok(());
                }
                writer.write_all(&vec![b'f'; self.filling])
            })();
            if sent.is_ok() && matches!(self.serves, Serves::Echo) {
                writer.end(Shutdown::Write);
            }
        });
        // In other exchanges nobody waits for it. Looking for it after each read of a long response
        // would take most of the time of these tests.
        let mut tells = matches!(self.serves, Serves::HttpWithContinue).then_some(tells);
        let mut received = Vec::new();
        let mut piece = [0; 16 * 1024];
        let ended = loop {
            match socket.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(read) => received.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if tells.is_some() && received.windows(CONTINUE.len()).any(|bytes| bytes == CONTINUE) {
                // This fails if the writing thread has ended with an error.
                let _ = tells.take().map(|tells| tells.send(()));
            }
        };
        drop(tells);
        socket.end(Shutdown::Both);
        sends.join().unwrap();
        (without_dates(&String::from_utf8(received).unwrap()), ended)
    }
}

/// The interim response to `Expect: 100-continue`.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn without_dates(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Returns the responses of the exchange without a fault.
fn expected(exchange: Exchange) -> String {
    let plan = Arc::new(Plan::new(Call::Accept, u64::MAX, 0, Fault::OneByte));
    let running = exchange.server(&plan, Over::Tcp);
    let (text, ended) = exchange.run(&running);
    ended.unwrap();
    assert!(!text.is_empty());
    running.end();
    text
}
