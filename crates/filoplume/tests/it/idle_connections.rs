//! What idle connections wait for, in the metrics and the feed of the console.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use filoplume::Console;
use filoplume::prelude::*;

#[test]
fn a_connection_that_sends_nothing_is_told_from_other_idle_ones() {
    let app = App::new()
        .metrics("/metrics")
        .console("/console", Console::local())
        .config(ServerConfig::default().head_timeout(Duration::from_secs(600)))
        .start("127.0.0.1:0")
        .unwrap();
    let _silent = TcpStream::connect(app.local_addr()).unwrap();
    // Asks until the text is there: the connection may not have been accepted yet.
    let until = |path: &str, text: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut client = TcpStream::connect(app.local_addr()).unwrap();
            let host = app.local_addr();
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            let (mut answer, mut bytes) = (String::new(), [0; 4096]);
            // The feed does not end: its first event does.
            while !answer.contains("\"stories\"") {
                let length = client.read(&mut bytes).unwrap();
                answer.push_str(&String::from_utf8_lossy(&bytes[..length]));
                if length == 0 {
                    break;
                }
            }
            if answer.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "{answer}");
        }
    };
    until("/metrics", "\nfiloplume_idle_connections{waits_for=\"first byte\"} 1\n");
    until("/metrics", "\nfiloplume_idle_connections{waits_for=\"content\"} 0\n");
    until("/console/events", "\"idle\":[{\"waits_for\":\"first byte\",\"count\":1}");
}
