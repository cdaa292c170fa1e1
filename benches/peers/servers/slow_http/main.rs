//! The backend that handlers call by HTTP: it answers every request after 1 ms, from one thread.
//!
//! It has to cost little, because it shares the cores with the server that is measured. tokio's
//! timers count milliseconds, so an answer would take up to two.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{HELLO, address_argument};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const ANSWER_AFTER: Duration = Duration::from_millis(1);

const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Much longer than a head.
const INPUT_BYTES: usize = 16 * 1024;

const EVENTS_MAX: usize = 256;

struct Server {
    epoll: Epoll,
    listener: TcpListener,
    timer: TimerFd,
    /// The time that the timer is set to. Setting it is expensive in a virtual machine.
    set_to: Option<Instant>,
    /// Indexed by file descriptor.
    connections: Vec<Option<Connection>>,
    /// The answers in the order in which they are due: all wait equally long.
    answers: VecDeque<Answer>,
    answer: String,
}

struct Connection {
    stream: Rc<TcpStream>,
    head: Head,
}

/// An answer that is due later. It keeps the socket open until then, so that no other connection
/// gets its descriptor.
struct Answer {
    due: Instant,
    stream: Rc<TcpStream>,
}

/// How many bytes of the end of a head have been read in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    matched: usize,
}

impl Head {
    /// Returns how many heads end in these bytes. Requests with content are not expected.
    fn ends_in(&mut self, bytes: &[u8]) -> usize {
        let mut ends = 0;
        for &byte in bytes {
            self.matched = match byte {
                byte if byte == END_OF_HEAD[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if self.matched == END_OF_HEAD.len() {
                self.matched = 0;
                ends += 1;
            }
        }
        ends
    }
}

impl Server {
    fn bind() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let listener = TcpListener::bind(address_argument())?;
        listener.set_nonblocking(true)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
        epoll.add(&listener, readable(descriptor(&listener)))?;
        epoll.add(&timer, readable(descriptor(&timer)))?;
        let length = HELLO.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{HELLO}"
        );
        let (connections, answers) = (Vec::new(), VecDeque::new());
        Ok(Self { epoll, listener, timer, set_to: None, connections, answers, answer })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let mut input = vec![0; INPUT_BYTES];
        let (listener, timer) = (descriptor(&self.listener), descriptor(&self.timer));
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => 0,
                count => count?,
            };
            for event in &events[..count] {
                let ready = event.data();
                if ready == listener {
                    self.accept()?;
                } else if ready == timer {
                    // Reads the timer, because it would stay ready otherwise. It is no failure if
                    // it is no longer ready.
                    let _ = self.timer.wait();
                    self.set_to = None;
                } else {
                    self.read(ready, &mut input);
                }
            }
            self.send_due()?;
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let number = descriptor(&stream);
        self.epoll.add(&stream, readable(number))?;
        let index = index(number);
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] =
            Some(Connection { stream: Rc::new(stream), head: Head::default() });
        Ok(())
    }

    fn read(&mut self, number: u64, input: &mut [u8]) {
        let slot = &mut self.connections[index(number)];
        let Some(connection) = slot else { return };
        match (&*connection.stream).read(input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => {
                // An answer that is still due may keep the socket open.
                let _ = self.epoll.delete(&*connection.stream);
                *slot = None;
            }
            Ok(read) => {
                let due = Instant::now() + ANSWER_AFTER;
                for _ in 0..connection.head.ends_in(&input[..read]) {
                    self.answers.push_back(Answer { due, stream: Rc::clone(&connection.stream) });
                }
            }
        }
    }

    /// Sends the answers that are due, and sets the timer for the next one.
    fn send_due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        while self.answers.front().is_some_and(|answer| answer.due <= now) {
            let answer = self.answers.pop_front().expect("it was just looked at");
            // The client may have gone. A socket whose client reads always has room for a short
            // answer.
            let _ = (&*answer.stream).write_all(self.answer.as_bytes());
        }
        let next = self.answers.front().map(|answer| answer.due);
        if next == self.set_to {
            return Ok(());
        }
        self.set_to = next;
        let Some(next) = next else { return Ok(self.timer.unset()?) };
        // A time of zero would not set the timer.
        let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        Ok(self.timer.set(once, TimerSetTimeFlags::empty())?)
    }
}

fn readable(number: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, number)
}

/// The number by which an event identifies its file.
fn descriptor(file: &impl AsFd) -> u64 {
    u64::from(file.as_fd().as_raw_fd().unsigned_abs())
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a descriptor is small")
}

fn main() -> io::Result<()> {
    Server::bind()?.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_wherever_they_are_cut() {
        let input = b"GET / HTTP/1.1\r\nA: \r\r\nB: c\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for cut in 0..=input.len() {
            let mut head = Head::default();
            let (first, second) = input.split_at(cut);
            assert_eq!(head.ends_in(first) + head.ends_in(second), 2, "cut at {cut}");
        }
    }
}
