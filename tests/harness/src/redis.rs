//! A Redis server in a process of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::child::installed;
use crate::free::free_address;
use crate::wait::eventually;

/// A Redis server that stores nothing. It ends with its test.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    address: SocketAddr,
    /// Where it may write, such as when a connection asks it to save what it has.
    folder: TempDir,
}

impl Redis {
    /// Starts a server. Returns `None`, and reports a skipped test, if Redis is not installed.
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::start_at(free_address())
    }

    /// Starts a server at an address, such as that of one that has ended. Returns `None`, and
    /// reports a skipped test, if Redis is not installed.
    #[track_caller]
    pub fn start_at(address: SocketAddr) -> Option<Self> {
        if !installed("redis-server") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let server = Self { process: spawn(address, &folder), address, folder };
        server.wait();
        Some(server)
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Sends it one command as text, and returns the raw answer.
    #[track_caller]
    pub fn ask(&self, command: &str) -> String {
        let answer = self.try_ask(command).unwrap();
        answer.trim_end().trim_end_matches("+OK").to_owned()
    }

    fn try_ask(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "{command}\r\nQUIT\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Sends the process a signal by its name, such as `STOP`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(kill.unwrap().success(), "{name}");
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again at the same address, without its data.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.process = spawn(self.address, &self.folder);
        self.wait();
    }

    #[track_caller]
    fn wait(&self) {
        eventually("Redis answers", || {
            self.try_ask("PING").is_ok_and(|answer| answer.starts_with("+PONG"))
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

#[track_caller]
fn spawn(address: SocketAddr, folder: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
        .arg(address.port().to_string())
        .arg("--dir")
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
