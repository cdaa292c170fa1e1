//! What does a scrape of `/metrics` cost in an app with a thousand routes?
//!
//! `cargo bench -p filoplume-benches --bench metrics`. All routes have had requests. The time is
//! that of the whole exchange over a socket. A second client requests something else meanwhile, and
//! its longest wait shows whether the only event loop was held up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume::ServerConfig;
use filoplume::prelude::*;

const ROUTES: usize = 1000;
const SCRAPES: u32 = 12;

/// Longer than the half second for which the text of the metrics is kept.
const NEW_TEXT_AFTER: Duration = Duration::from_millis(510);

fn main() {
    for (what, waiting) in
        [("quick routes", 0), ("a tenth of them wait", 100), ("all wait", ROUTES)]
    {
        let app = app(waiting).start("127.0.0.1:0").expect("a free port");
        let mut client = Client::connect(app.local_addr());
        for _ in 0..2 {
            for route in 0..ROUTES {
                client.get(&format!("/shop/section{route}/items/17"));
            }
        }
        let idle = longest_wait(app.local_addr(), || {
            thread::sleep(NEW_TEXT_AFTER * SCRAPES);
        });
        let (mut times, mut bytes) = (Vec::new(), 0);
        let scraped = longest_wait(app.local_addr(), || {
            for _ in 0..SCRAPES {
                thread::sleep(NEW_TEXT_AFTER);
                let (time, length) = client.get("/metrics");
                times.push(time);
                bytes = length;
            }
        });
        let (again, _) = client.get("/metrics");
        times.sort();
        println!(
            "{what}: {:.2?} (from {:.2?} to {:.2?}) for {} KiB; again {again:.2?}; others waited \
             for {scraped:.2?} at most, and {idle:.2?} without scrapes",
            times[times.len() / 2],
            times[0],
            times[times.len() - 1],
            bytes / 1024,
        );
        app.shutdown();
    }
}

/// Returns an app in which this many routes wait for half a millisecond.
fn app(waiting: usize) -> App {
    let app = App::new().config(ServerConfig::default().event_loops(1)).metrics("/metrics");
    (0..ROUTES).fold(app, |app, number| {
        app.get(&format!("/shop/section{number}/items/{{id}}"), move |Path(id): Path<u64>| {
            if number < waiting {
                thread::sleep(Duration::from_micros(500));
            }
            id.to_string()
        })
    })
}

/// Requests a path without a route again and again while `code` runs. Returns the longest wait.
fn longest_wait(address: SocketAddr, code: impl FnOnce()) -> Duration {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut client = Client::connect(address);
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                longest = longest.max(client.get("/").0);
                thread::sleep(Duration::from_micros(200));
            }
            longest
        });
        code();
        is_over.store(true, Ordering::Relaxed);
        other.join().expect("it does not panic")
    })
}

struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("it is connected");
        Self { stream, received: vec![0; 64 << 20] }
    }

    /// Returns how long the exchange took, and the length of the content.
    fn get(&mut self, path: &str) -> (Duration, usize) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let started = Instant::now();
        self.stream.write_all(request.as_bytes()).expect("the server reads");
        let mut length = 0;
        loop {
            let room = &mut self.received[length..];
            length += self.stream.read(room).expect("the server answers");
            let received = &self.received[..length];
            let Some(head) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let content = content_length(&received[..head]);
            if length >= head + 4 + content {
                return (started.elapsed(), content);
            }
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).expect("a head is text");
    let field = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    field.expect("the content has a length")
}
