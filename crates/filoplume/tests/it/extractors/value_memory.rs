//! The memory of the values that JSON becomes is bounded.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use filoplume::RunningApp;
use filoplume::middleware::MethodOverride;
use filoplume::prelude::*;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// An app whose handler of `/json` tells that it has a value, and waits until it is told to go on.
struct Waiting {
    app: RunningApp,
    has_value: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl Waiting {
    fn start() -> Self {
        let (tells, has_value) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let goes_on = Arc::new(Mutex::new(goes_on));
        let wait = move |Json(value): Json<Value>| {
            tells.send(()).unwrap();
            goes_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            value.as_array().map_or(0, Vec::len).to_string()
        };
        let config = ServerConfig::default().memory_max(32 << 20);
        let routes = App::new().post("/json", wait.clone()).put("/changed", wait);
        let app = routes.with(MethodOverride::new()).config(config).start("127.0.0.1:0").unwrap();
        Self { app, has_value, go_on }
    }

    /// Sends an array of small objects, and waits until the handler has it.
    #[track_caller]
    fn send(&self, objects: usize) -> TcpStream {
        self.send_to("/json", objects)
    }

    #[track_caller]
    fn send_to(&self, target: &str, objects: usize) -> TcpStream {
        let socket = send(self.app.local_addr(), target, objects);
        self.has_value.recv_timeout(PATIENCE).unwrap();
        socket
    }

    #[track_caller]
    fn end_all(&self, sockets: &[TcpStream]) {
        sockets.iter().for_each(|_| self.go_on.send(()).unwrap());
        sockets.iter().for_each(|socket| is_answered(socket, "200"));
    }
}

/// Sends an array of small objects. Each takes 7 bytes here and some 640 there.
fn send(address: SocketAddr, target: &str, objects: usize) -> TcpStream {
    let content = format!("[{}0]", "{\"\":0},".repeat(objects));
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = content.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: \
         {length}\r\n\r\n"
    );
    socket.write_all((head + &content).as_bytes()).unwrap();
    socket
}

#[track_caller]
fn is_answered(mut socket: &TcpStream, status: &str) {
    let mut start = [0; 12];
    socket.read_exact(&mut start).unwrap();
    assert_eq!(String::from_utf8_lossy(&start), format!("HTTP/1.1 {status}"));
}

#[test]
fn the_memory_of_values_counts_until_their_requests_are_answered() {
    let waiting = Waiting::start();
    // Each takes a quarter of what there is.
    let mut held: Vec<_> = (0..4).map(|_| waiting.send(12_000)).collect();
    let metrics = waiting.app.server().metrics().unwrap();
    assert_eq!(metrics.memory_used, 0, "values take nothing from peers");
    is_answered(&send(waiting.app.local_addr(), "/json", 12_000), "503");
    // Most requests pay nothing, and are answered.
    held.push(waiting.send(500));
    waiting.end_all(&held);
    // All is given back.
    let held: Vec<_> = (0..4).map(|_| waiting.send(12_000)).collect();
    waiting.end_all(&held);
    waiting.app.shutdown();
}

/// A `POST` that becomes a `PUT`.
#[test]
fn values_of_an_overridden_method_count_in_the_budget() {
    let (waiting, target) = (Waiting::start(), "/changed?_method=PUT");
    let held: Vec<_> = (0..4).map(|_| waiting.send_to(target, 12_000)).collect();
    is_answered(&send(waiting.app.local_addr(), target, 12_000), "503");
    waiting.end_all(&held);
    waiting.end_all(&[waiting.send_to(target, 12_000)]);
    waiting.app.shutdown();
}

#[test]
fn a_value_that_may_be_larger_than_the_budget_is_not_refused_for_ever() {
    let waiting = Waiting::start();
    waiting.end_all(&[waiting.send(100_000)]);
    waiting.app.shutdown();
}
