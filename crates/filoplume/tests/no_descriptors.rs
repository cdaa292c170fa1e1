//! The metrics of a process that has used up its descriptors. It is the only test of its program,
//! because others would get none either.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{self, Command};

use filoplume::prelude::*;

/// Enough for an app, and soon used up.
const DESCRIPTORS: &str = "--nofile=200:200";

#[test]
fn the_figures_of_the_process_are_there_when_no_descriptor_is_free() {
    let pid = process::id().to_string();
    let limit = Command::new("prlimit").args(["--pid", &pid, DESCRIPTORS]).status();
    if !limit.is_ok_and(|status| status.success()) {
        skip::without("prlimit");
        return;
    }
    let app = App::new().metrics("/metrics").start("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(app.local_addr()).unwrap();
    // The first response shows that the server has accepted the connection.
    write!(client, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert_ne!(client.read(&mut [0; 4096]).unwrap(), 0);
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    write!(client, "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    drop(files);
    for line in [
        "\nprocess_max_fds 200\n",
        "\nprocess_resident_memory_bytes ",
        "\nprocess_start_time_seconds ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
