//! A chat: each client sends a name first, and each further line goes to all other clients.
//! `line_chat [-t THREADS] [-p PORT]` listens on port 8002 by default. Join with `nc 127.0.0.1
//! 8002`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use filoplume_runtime::Peer;
use filoplume_runtime::tcp::{Closed, Io, Protocol, SendError, Sender};
use tcp_options::TcpOptions;

/// The maximum length of a line and of a name.
const LINE_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 32;

/// The clients that have sent a name.
#[derive(Default)]
struct Room {
    members: Mutex<BTreeMap<String, Sender>>,
}

impl Room {
    /// Adds a client. Returns `false` if the name is taken.
    fn join(&self, name: &str, sender: Sender) -> bool {
        {
            let mut members = self.members();
            if members.contains_key(name) {
                return false;
            }
            members.insert(name.to_owned(), sender);
        }
        self.tell_others(name, &format!("* {name} is here\n"));
        true
    }

    fn leave(&self, name: &str) {
        self.members().remove(name);
        self.tell_others(name, &format!("* {name} is gone\n"));
    }

    /// Sends a line to all other clients. Removes clients that do not read, so that the others do
    /// not wait.
    fn tell_others(&self, name: &str, line: &str) {
        for (other, sender) in &*self.members() {
            if other != name && sender.send(line.to_owned()) == Err(SendError::Full) {
                sender.close();
            }
        }
    }

    fn members(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Sender>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Member {
    room: Arc<Room>,
    name: Option<String>,
}

impl Member {
    /// Returns whether the client stays.
    fn hear(&mut self, line: &str, io: &mut Io<'_>) -> bool {
        match &self.name {
            _ if line == "/quit" => {
                io.send(b"* bye\n");
                io.close();
                return false;
            }
            Some(name) => self.room.tell_others(name, &format!("{name}: {line}\n")),
            None => {
                let fits = (1..=NAME_BYTES_MAX).contains(&line.len())
                    && line.chars().all(char::is_alphanumeric);
                if fits && self.room.join(line, io.sender()) {
                    self.name = Some(line.to_owned());
                    io.send(format!("* welcome, {line}\n").as_bytes());
                } else {
                    io.send(b"* another name, please\n");
                }
            }
        }
        true
    }
}

impl Protocol for Member {
    fn open(&mut self, io: &mut Io<'_>) {
        io.send(b"* your name?\n");
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let mut used = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let Some(text) = line.strip_suffix(b"\n") else { break };
            used += line.len();
            if text.len() > LINE_BYTES_MAX {
                io.close();
                break;
            }
            if !self.hear(printable(text).trim(), io) {
                break;
            }
        }
        used
    }

    /// Clients may be silent for any time.
    fn deadline(&mut self, io: &mut Io<'_>) {
        if self.name.is_none() {
            io.close();
        }
    }

    fn close(&mut self, _reason: Closed) {
        if let Some(name) = &self.name {
            self.room.leave(name);
        }
    }

    fn unread_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }
}

/// Returns the text without control characters, which could change what the terminals of others
/// show. The CR of clients that end lines with CR LF is one of them.
fn printable(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().filter(|it| !it.is_control()).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = TcpOptions::of_arguments(8002)?.server()?;
    let room = Arc::new(Room::default());
    server.serve_tcp(move |_: Peer| Member { room: Arc::clone(&room), name: None })?;
    Ok(())
}
