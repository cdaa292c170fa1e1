//! Asks a few questions before a load, so that a wrong answer is not measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::clients::if_complete;
use crate::who::Who;

/// The same route, without misses.
pub const HITS: &str = "/miss?one_in=0";

/// A long deadline, because a first request may open all connections of a pool.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The number of requests that measure a wait. The fastest counts, so that the server does not seem
/// to be wrong on a busy machine.
const WAITS: usize = 5;

/// How much longer a wait may take. A server that ignores microseconds waits for 10 ms.
const LATE_MAX: Duration = Duration::from_millis(8);

/// Checks that the server does what this scenario asks of it.
pub fn check(who: Who, address: SocketAddr) -> io::Result<()> {
    match who {
        Who::Waiting(target) => Probe::connect(address)?.check_wait(target),
        Who::Missing(target) => Probe::connect(address)?.check_misses(target),
        Who::Calling(call) => Probe::connect(address)?.check_content(call.target, call.content),
        _ => Ok(()),
    }
}

/// A kept connection to a server.
struct Probe {
    stream: TcpStream,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    content: String,
    took: Duration,
}

impl Probe {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
        Ok(Self { stream })
    }

    /// Requests this target and reads the whole answer.
    fn ask(&mut self, target: &str) -> io::Result<Answer> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let start = Instant::now();
        self.stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece)? {
                0 => return Err(io::Error::other(format!("no answer to {target}"))),
                read => answer.extend_from_slice(&piece[..read]),
            }
            if let Some((status, content)) = if_complete(&answer)? {
                let content = String::from_utf8_lossy(content).into_owned();
                return Ok(Answer { status, content, took: start.elapsed() });
            }
        }
    }

    /// Like `ask`, and fails if the status is not 200.
    fn ask_for_ok(&mut self, target: &str) -> io::Result<Answer> {
        let answer = self.ask(target)?;
        if answer.status == 200 {
            return Ok(answer);
        }
        let content: String = answer.content.chars().take(200).collect();
        Err(io::Error::other(format!("{target} is answered with {}: {content}", answer.status)))
    }

    fn check_content(&mut self, target: &str, expected: &str) -> io::Result<()> {
        match self.ask_for_ok(target)?.content {
            content if content == expected => Ok(()),
            content => Err(io::Error::other(format!("{target} is answered with {content}"))),
        }
    }

    fn check_wait(&mut self, target: &str) -> io::Result<()> {
        let mut fastest = Duration::MAX;
        for _ in 0..WAITS {
            fastest = fastest.min(self.ask_for_ok(target)?.took);
        }
        let length = length(target);
        if is_wait(fastest, length) {
            return Ok(());
        }
        Err(io::Error::other(format!("{target} took {fastest:?}")))
    }

    /// Checks that `one_in` calls have exactly one miss, and that calls of `HITS` do not count
    /// among them.
    fn check_misses(&mut self, target: &str) -> io::Result<()> {
        let mut misses = 0;
        for _ in 0..value(target, "one_in=") {
            let answer = self.ask_for_ok(target)?;
            misses += u64::from(answer.content == "miss" && answer.took >= length(target));
            if self.ask_for_ok(HITS)?.content != "hit" {
                return Err(io::Error::other(format!("{HITS} is not answered with a hit")));
            }
        }
        if misses == 1 {
            Ok(())
        } else {
            Err(io::Error::other(format!("{misses} misses at {target}")))
        }
    }
}

/// The time that `us=` in a target stands for.
fn length(target: &str) -> Duration {
    Duration::from_micros(value(target, "us="))
}

fn value(target: &str, name: &str) -> u64 {
    let value = target.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.parse().ok());
    value.expect("the targets of the scenarios are complete")
}

fn is_wait(took: Duration, length: Duration) -> bool {
    (length..=length + LATE_MAX).contains(&took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn a_wait_is_neither_shorter_nor_much_longer_than_asked() {
        let wait =
            |took, length| is_wait(Duration::from_micros(took), Duration::from_micros(length));
        assert!(wait(160, 100));
        assert!(!wait(99, 100));
        assert!(!wait(10_070, 100));
    }

    #[test]
    fn a_target_has_its_time_anywhere() {
        assert_eq!(length("/sleep?us=300"), Duration::from_micros(300));
        assert_eq!(length("/miss?one_in=10&us=1000"), Duration::from_millis(1));
    }

    #[test]
    fn another_status_is_told_with_its_content() {
        let error =
            answered("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone").unwrap_err();
        assert_eq!(error.to_string(), "/a is answered with 404: gone");
        let answer = answered("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!(answer.content, "ok");
    }

    /// The result of a probe that gets this answer to its first request.
    fn answered(answer: &'static str) -> io::Result<Answer> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let answer = Probe::connect(address)?.ask_for_ok("/a");
        server.join().unwrap();
        answer
    }
}
