//! A Redis of the test's own.

#![allow(clippy::unwrap_used, reason = "this is for tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server on a free port, with a folder of its own, which ends with this value.
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl RedisServer {
    /// Starts one. `None`, and a line that says so, where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_at(free_port())
    }

    pub(crate) fn start_at(port: u16) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let process = match spawn(port, &folder) {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip::without("redis-server");
                return None;
            }
            Err(error) => panic!("redis-server cannot be started: {error}"),
        };
        let server = Self { process, port, folder };
        server.wait();
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again where it was, without what it knew.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.process = spawn(self.port, &self.folder).unwrap();
        self.wait();
    }

    /// Sends one command as text, and returns the answer as it comes.
    pub(crate) fn ask(&self, command: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(socket, "{command}\r\nQUIT\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.trim_end().trim_end_matches("+OK").to_owned()
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self
                .connect()
                .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection));
            match answer {
                Ok(_) => return,
                Err(error) => {
                    assert!(Instant::now() < deadline, "redis-server does not answer: {error}");
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(port: u16, folder: &TempDir) -> std::io::Result<Child> {
    Command::new("redis-server")
        .args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
            &port.to_string(),
            "--dir",
        ])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
