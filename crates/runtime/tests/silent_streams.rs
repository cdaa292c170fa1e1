//! Pushed bodies that nobody pushes to cost nothing, whatever the timeouts are.
//!
//! One test, because it measures the processor time of its process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use filoplume_runtime::pushed::{self, Pushed};
use filoplume_runtime::{Request, Response, Server, ServerConfig};

/// For how long the streams are silent.
const SILENCE: Duration = Duration::from_secs(1);

/// A loop that looks at a stream all the time uses all of the silence.
const CPU_MAX: Duration = Duration::from_millis(200);

fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn check(keep_alive_timeout: Duration, options: fn(Pushed) -> Pushed) {
    let config = ServerConfig::default().keep_alive_timeout(keep_alive_timeout);
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    let (senders, sent) = mpsc::channel();
    server
        .spawn(move |_: Request| {
            let (sender, body) = pushed::channel();
            senders.send(sender).unwrap();
            let mut response = Response::default();
            response.set_pushed(options(body));
            response
        })
        .unwrap();
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let sender = sent.recv().unwrap();
    let mut received = Vec::new();
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let before = cpu_time();
    let error = client.read_to_end(&mut received).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}");
    let used = cpu_time() - before;
    assert!(used < CPU_MAX, "{keep_alive_timeout:?}: {used:?} of {SILENCE:?}");
    // It is still open.
    client.set_read_timeout(None).unwrap();
    sender.send("the end").unwrap();
    drop(sender);
    let _ = client.read_to_end(&mut received);
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains("the end") && received.ends_with("0\r\n\r\n"), "{received}");
    server.shutdown_handle().shutdown();
    server.wait();
}

#[test]
fn a_silent_stream_costs_no_processor_time() {
    // Shorter than the interval, as `ServerConfig::strict` has it beside a stream of events.
    check(Duration::from_millis(50), |body| body.keep_alive(Duration::from_secs(15), "."));
    check(Duration::from_millis(50), |body| body.keep_alive(Duration::MAX, "."));
    check(Duration::ZERO, |body| body.keep_alive(Duration::from_secs(15), "."));
    check(Duration::ZERO, |body| body);
}
