//! A Redis server in a process of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::child::{free_address, installed};
use crate::wait::eventually;

/// A Redis server that stores nothing. It ends with its test.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    address: SocketAddr,
}

impl Redis {
    /// Starts a server. Returns `None`, and reports a skipped test, if Redis is not installed.
    #[track_caller]
    pub fn start() -> Option<Self> {
        if !installed("redis-server") {
            return None;
        }
        let address = free_address();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(address.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, address };
        eventually("Redis answers", || server.answers());
        Some(server)
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let mut answer = String::new();
        stream.write_all(b"PING\r\nQUIT\r\n").is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("+PONG")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
