//! A Redis of the test's own.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server on a free port, which ends with this value.
pub(super) struct RedisServer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts one, or says that the test is skipped.
    pub(super) fn start() -> Option<Self> {
        Self::start_at(free_port())
    }

    pub(super) fn start_at(port: u16) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new("redis-server")
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
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("SKIPPED: redis-server is not installed");
                return None;
            }
            Err(error) => panic!("redis-server cannot be started: {error}"),
        };
        let server = Self { child, port, _folder: folder };
        server.wait();
        Some(server)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer =
                self.connect().and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection));
            match answer {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < deadline, "redis-server does not answer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens at.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
