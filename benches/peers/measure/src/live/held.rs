//! The cost of one connection that is open and silent.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Asked, start_gust};
use crate::build::Program;
use crate::generator::{Generator, Tools};
use crate::gust;
use crate::proc::Size;
use crate::report::Figures;
use crate::running::Running;

/// How many connections are held.
const HELD: usize = 10_000;

/// The number of connections that come and go first. Memory that only the first ones allocate is
/// not the price of a connection.
const FIRST: usize = 64;

/// The deadline for all connections to be open. After it there is no figure.
const OPEN_WITHIN: Duration = Duration::from_secs(120);

/// How long all connections are silent before the memory is read.
const SILENT_FOR: Duration = Duration::from_secs(3);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The duration of the generator's run, which is stopped earlier.
const GENERATOR_SECONDS: u64 = 600;

/// The connections of one port, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Connected {
    /// The connections that the server has accepted.
    by_server: usize,
    by_clients: usize,
}

impl Connected {
    fn now(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::of(&fs::read_to_string("/proc/net/tcp")?, address.port()))
    }

    fn of(table: &str, port: u16) -> Self {
        let mut connected = Self::default();
        let suffix = format!(":{port:04X}");
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // The number, both addresses, the state (01: established), and further on the inode,
            // which is 0 until the connection is accepted.
            let [_, local, remote, "01", .., inode] = fields[..fields.len().min(10)] else {
                continue;
            };
            connected.by_server += usize::from(local.ends_with(&suffix) && inode != "0");
            connected.by_clients += usize::from(remote.ends_with(&suffix));
        }
        connected
    }

    fn are(self, count: usize) -> bool {
        self == Self { by_server: count, by_clients: count }
    }
}

/// Opens the connections, and reads the server's memory while all of them are open and silent.
/// Fails if a connection is missing on either side.
pub fn measure(tools: &Tools, asked: &Asked, program: &Program) -> io::Result<Figures> {
    let server = Running::start(program)?;
    let (scheme, path) = asked.url;
    let (scheme, kind) = if scheme == "http+sse" { ("http", "--sse") } else { (scheme, "--hold") };
    let options = |connections: usize, seconds: u64| {
        let mut options = vec![
            format!("-c{connections}"),
            "-t1".to_owned(),
            format!("-d{seconds}s"),
            format!("--timeout={}s", OPEN_WITHIN.as_secs()),
            kind.to_owned(),
        ];
        options.extend((scheme == "https").then(|| "--insecure".to_owned()));
        options
    };
    let first = start_gust(tools, &options(FIRST, 1), scheme, path, &server, OPEN_WITHIN)?;
    first.finish()?;
    wait_until(server.address, 0)?;
    let before = Size::of(server.pid())?;
    let within = Duration::from_secs(GENERATOR_SECONDS);
    let child =
        start_gust(tools, &options(HELD, GENERATOR_SECONDS), scheme, path, &server, within)?;
    wait_until(server.address, HELD)?;
    thread::sleep(SILENT_FOR);
    let size = Size::of(server.pid())?;
    let after = Connected::now(server.address)?;
    // A generator that has already ended has reported the reason.
    let _ = kill(Pid::from_raw(child.pid().cast_signed()), Signal::SIGINT);
    let ended = child.finish()?;
    let rates = Generator::Gust.read(&ended)?;
    let held = gust::live(&ended.output).held.unwrap_or(0);
    let problems: Vec<_> = rates
        .problems
        .into_iter()
        // A WebSocket that is only held is never served, and need not be.
        .filter(|one| kind == "--hold" && scheme == "https" || !one.contains("never served"))
        .collect();
    if held != HELD as u64 || !after.are(HELD) || !problems.is_empty() {
        return Err(io::Error::other(format!(
            "not held all the time: {after:?}, gust held {held}, {}",
            problems.join(", ")
        )));
    }
    let grown = size.resident_kib.saturating_sub(before.resident_kib) as f64;
    Ok(Figures::default()
        .number("per connection", grown / HELD as f64)
        .number("memory", size.resident_kib as f64 / 1024.0)
        .number("threads before", before.threads as f64)
        .number("threads", size.threads as f64)
        .number("held", held as f64))
}

/// Waits until there are exactly this many connections on both sides.
fn wait_until(address: SocketAddr, count: usize) -> io::Result<()> {
    let deadline = Instant::now() + OPEN_WITHIN;
    loop {
        let connected = Connected::now(address)?;
        if connected.are(count) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let error = format!("there are not {count} connections, but {connected:?}");
            return Err(io::Error::other(error));
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_accepted_and_established_connections_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let now = || Connected::now(address).unwrap();
        assert_eq!(now(), Connected { by_server: 0, by_clients: 1 });
        let accepted = listener.accept().unwrap();
        assert!(now().are(1));
        drop(accepted);
        drop(client);
        assert!(now().are(0));
    }
}
