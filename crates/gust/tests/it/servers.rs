//! Small servers with one thread per connection, whose behaviour each test chooses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello";

/// A received request.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) content: Vec<u8>,
}

/// Starts a server that calls `serve` with each connection. It ends with the process of the test.
pub(crate) fn each_connection(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Starts a server that answers each request with the bytes from `answer`. It closes the connection
/// if there are none, or if they contain `Connection: close`.
pub(crate) fn each_request(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> u16 {
    each_connection(move |stream| answer_all(stream, &answer))
}

pub(crate) fn answer_all<S>(stream: S, answer: &impl Fn(&Request) -> Vec<u8>)
where
    S: Read,
    for<'a> &'a S: Write,
{
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        let bytes = answer(&request);
        let mut stream = reader.get_ref();
        if bytes.is_empty() || stream.write_all(&bytes).is_err() {
            return;
        }
        let head = String::from_utf8_lossy(&bytes).to_lowercase();
        let is_framed =
            head.contains("content-length") || head.contains("chunked") || head.contains(" 204 ");
        if !is_framed || head.contains("connection: close") {
            return;
        }
    }
}

/// Starts a server that answers all requests with the same bytes.
pub(crate) fn always(answer: &'static [u8]) -> u16 {
    each_request(move |_| answer.to_vec())
}

pub(crate) fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut content = vec![0; length];
    reader.read_exact(&mut content).ok()?;
    Some(Request { method, path, head, content })
}

/// Starts a server that echoes what it receives, after `change`.
pub(crate) fn echo(change: impl Fn(&mut [u8]) + Send + Sync + 'static) -> u16 {
    each_connection(move |mut stream| {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            change(&mut buffer[..read]);
            if stream.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    })
}

/// Closes the connection with a reset.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// A counter that threads share.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Adds one and returns the previous count.
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
