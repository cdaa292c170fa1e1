//! A Redis server for tests. Two binaries of tests have this file.

#![allow(clippy::unwrap_used, reason = "this is for tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server on a free port with a temporary folder. It ends when this value is dropped.
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server. If Redis is not installed, prints a line and returns `None`.
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

    /// Sends a signal to the server, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(kill.unwrap().success(), "{name}");
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Restarts the server at the same port, without its data.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.process = spawn(self.port, &self.folder).unwrap();
        self.wait();
    }

    /// Sends one command as text, and returns the raw response.
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
            // Polls: a refused connection does not tell when it would be accepted.
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

/// Returns a free port.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
