//! The memory of the values that JSON becomes counts in the memory budget.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use filoplume::RunningApp;
use filoplume::prelude::*;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts an app whose handler of `/json` waits until it is told to go on.
fn start() -> (RunningApp, mpsc::Sender<()>) {
    let (go_on, goes_on) = mpsc::channel();
    let goes_on = Mutex::new(goes_on);
    let wait = move |Json(value): Json<Value>| {
        goes_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        value.as_array().map_or(0, Vec::len).to_string()
    };
    let config = ServerConfig::default().memory_max(40 << 20);
    let app = App::new().post("/json", wait).config(config).start("127.0.0.1:0").unwrap();
    (app, go_on)
}

/// Sends an array of small objects. Each takes 7 bytes here and some 640 there.
fn send(address: SocketAddr, objects: usize) -> TcpStream {
    let content = format!("[{}0]", "{\"\":0},".repeat(objects));
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = content.len();
    let head = format!(
        "POST /json HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: \
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

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_memory_of_values_counts_until_their_requests_are_answered() {
    let (app, go_on) = start();
    let used = || app.server().metrics().unwrap().memory_used;
    // Each takes a quarter of what long contents may have together.
    let each = 6 << 20..9 << 20;
    let mut held = Vec::new();
    for count in 1..=3 {
        held.push(send(app.local_addr(), 10_000));
        let (least, most) = (count * each.start, count * each.end);
        eventually("one more is counted", || (least..most).contains(&used()));
    }
    is_answered(&send(app.local_addr(), 10_000), "503");
    // Most requests pay nothing, and are answered.
    held.push(send(app.local_addr(), 500));
    held.iter().for_each(|_| go_on.send(()).unwrap());
    held.iter().for_each(|socket| is_answered(socket, "200"));
    eventually("all is given back", || used() == 0);
    app.shutdown();
}

#[test]
fn a_value_that_may_be_larger_than_the_budget_is_not_refused_for_ever() {
    let (app, go_on) = start();
    go_on.send(()).unwrap();
    is_answered(&send(app.local_addr(), 100_000), "200");
    app.shutdown();
}
