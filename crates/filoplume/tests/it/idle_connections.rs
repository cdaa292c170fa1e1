//! What idle connections wait for, and why connections were ended, in the metrics and the feed of
//! the console.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use filoplume::prelude::*;
use filoplume::{Console, RunningApp};

/// Asks until a response has the text, and returns the response.
#[track_caller]
fn until(app: &RunningApp, path: &str, text: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let host = app.local_addr();
        let mut client = TcpStream::connect(host).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let (mut answer, mut bytes) = (String::new(), [0; 4096]);
        // The feed does not end: its first event does.
        while !answer.contains("\"stories\"") {
            // The end may also be a reset.
            let length = client.read(&mut bytes).unwrap_or(0);
            answer.push_str(&String::from_utf8_lossy(&bytes[..length]));
            if length == 0 {
                break;
            }
        }
        if answer.contains(text) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
    }
}

#[test]
fn a_connection_that_sends_nothing_is_told_from_other_idle_ones() {
    let app = App::new()
        .metrics("/metrics")
        .console("/console", Console::local())
        .config(ServerConfig::default().head_timeout(Duration::from_secs(600)))
        .start("127.0.0.1:0")
        .unwrap();
    let _silent = TcpStream::connect(app.local_addr()).unwrap();
    until(&app, "/metrics", "\nfiloplume_idle_connections{waits_for=\"first byte\"} 1\n");
    until(&app, "/metrics", "\nfiloplume_idle_connections{waits_for=\"content\"} 0\n");
    until(&app, "/console/events", "\"idle\":[{\"waits_for\":\"first byte\",\"count\":1}");
}

#[test]
fn a_connection_that_is_ended_at_a_deadline_is_counted_by_what_it_waited_for() {
    let app = App::new()
        .metrics("/metrics")
        .console("/console", Console::local())
        .config(ServerConfig::default().head_timeout(Duration::from_secs(1)))
        .start("127.0.0.1:0")
        .unwrap();
    let mut silent = TcpStream::connect(app.local_addr()).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    let text = until(&app, "/metrics", "\nfiloplume_timeouts_total{");
    // A slow machine may have ended a connection of this test as well.
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}\n{text}")).trim().parse().unwrap()
    };
    assert_ne!(value("filoplume_timeouts_total{waits_for=\"first byte\"}"), 0);
    assert_ne!(value("filoplume_connections_ended_total{reason=\"deadline\"}"), 0);
    for line in [
        "filoplume_timeouts_total{waits_for=\"content\"}",
        "filoplume_connections_ended_total{reason=\"room\"}",
        "filoplume_connections_ended_total{reason=\"descriptors\"}",
        "filoplume_connections_ended_total{reason=\"memory\"}",
        "filoplume_accept_errors_total{reason=\"descriptors\"}",
        "filoplume_accept_errors_total{reason=\"other\"}",
    ] {
        assert_eq!(value(line), 0, "{line}");
    }
    // Both families have the same names for what is waited for, so that they can be compared.
    let names = |family: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with(family));
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(names("filoplume_timeouts_total{"), names("filoplume_idle_connections{"));
    assert_eq!(names("filoplume_timeouts_total{").len(), 9);
    let ended = "\"ended\":[{\"reason\":\"deadline: first byte\",\"count\":";
    let event = until(&app, "/console/events", ended);
    if cfg!(target_os = "linux") {
        let process = event.split("\"process\":").nth(1).unwrap();
        let bytes = process.split('}').next().unwrap().parse::<u64>();
        assert!(bytes.as_ref().is_ok_and(|&bytes| bytes > 100_000), "{bytes:?}");
    }
}

#[test]
fn the_feed_tells_first_what_most_connections_wait_for_and_nothing_that_none_does() {
    let app = App::new()
        .get("/", || "hi")
        .console("/console", Console::local())
        .config(
            ServerConfig::default()
                .head_timeout(Duration::from_secs(600))
                .keep_alive_timeout(Duration::from_secs(600)),
        )
        .start("127.0.0.1:0")
        .unwrap();
    let host = app.local_addr();
    let _silent = TcpStream::connect(host).unwrap();
    let _idle = [(); 3].map(|()| {
        let mut client = TcpStream::connect(host).unwrap();
        write!(client, "GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
        assert!(client.read(&mut [0; 1000]).unwrap() > 0);
        client
    });
    // The connection that asks is not idle.
    until(
        &app,
        "/console/events",
        "\"idle\":[{\"waits_for\":\"next request\",\"count\":3},\
         {\"waits_for\":\"first byte\",\"count\":1}]",
    );
    until(&app, "/console/events", "\"ended\":[]");
}
