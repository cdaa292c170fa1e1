//! A client with blocking sockets: each thread writes to each of its sockets, then waits for each
//! response.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::connection::Scratch;
use crate::cpu::ThreadTime;
use crate::exchange::{Exchange, Flow};
use crate::outbox::{Finished, Outbox, longest_wait};
use crate::plan::Plan;
use crate::retry::{Reachability, Retry};
use crate::shared::{Budget, Shared};
use crate::tally::{ErrorKind, Tally};
use crate::target::Address;
use crate::tls::{Tls, TlsStream};
use crate::units::{Nanos, nanos};

/// Longest time that a read blocks before the clock is read.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

const INPUT_BYTES: usize = 32 * 1024;

/// Runs the share of one thread in a plan until the end of the run.
pub(crate) fn run(plan: &Plan, shared: &Shared, index: usize, outbox: Outbox) -> Finished {
    let counts_from = nanos(plan.warmup);
    let count = (index..plan.connections).step_by(plan.threads).count();
    let mut client = Client {
        plan,
        shared,
        slots: (0..count).map(|_| Slot::new(plan)).collect(),
        budget: Budget::new(plan),
        position: index * 7919,
        scratch: Scratch::new(INPUT_BYTES),
        tally: Tally::new(counts_from, false),
        outbox,
        cpu: ThreadTime::start(),
        end: plan.end.after.map_or(Nanos::MAX, |after| counts_from.saturating_add(nanos(after))),
        server: Reachability::default(),
    };
    client.drive();
    client.finish()
}

struct Client<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    slots: Vec<Slot>,
    budget: Budget,
    position: usize,
    scratch: Scratch,
    tally: Tally,
    outbox: Outbox,
    cpu: ThreadTime,
    end: Nanos,
    server: Reachability,
}

struct Slot {
    stream: Option<Box<dyn Socket>>,
    exchange: Exchange,
    opened: u64,
    retry: Retry,
    /// The connection is not opened again before this time.
    opens_at: Nanos,
}

impl Slot {
    fn new(plan: &Plan) -> Self {
        let exchange = Exchange::new(plan);
        Self { stream: None, exchange, opened: 0, retry: Retry::default(), opens_at: 0 }
    }
}

/// A blocking socket.
pub(crate) trait Socket: Read + Write + Send {}

impl Socket for TcpStream {}
impl Socket for UnixStream {}
impl Socket for TlsStream<TcpStream> {}

impl Client<'_> {
    fn drive(&mut self) {
        loop {
            let mut is_idle = true;
            for slot in 0..self.slots.len() {
                is_idle &= !self.send_requests(slot);
                if self.is_over() {
                    return;
                }
            }
            for slot in 0..self.slots.len() {
                self.await_responses(slot);
                if self.is_over() {
                    return;
                }
            }
            if is_idle {
                if self.budget.is_used_up(self.shared) || self.server_is_gone() {
                    return;
                }
                std::thread::sleep(READ_TIMEOUT);
                if self.is_over() {
                    return;
                }
            }
        }
    }

    /// Writes requests until the pipeline is full. Returns whether any is in flight, or was
    /// until the write failed.
    fn send_requests(&mut self, slot: usize) -> bool {
        let begun = self.shared.clock.now();
        if self.budget.is_used_up(self.shared) || !self.is_connected(slot, begun) {
            return false;
        }
        // With a new connection per request, the latency includes the connect.
        let now = if self.plan.keep_alive { self.shared.clock.now() } else { begun };
        let Self { plan, slots, budget, tally, .. } = self;
        let exchange = &mut slots[slot].exchange;
        while exchange.in_flight() < plan.depth && budget.take(self.shared, now) {
            self.position += 1;
            exchange.begin(plan.requests.at(self.position), now, now, tally);
        }
        let has_begun = exchange.in_flight() > 0;
        self.write_requests(slot);
        has_begun
    }

    /// Writes the requests that were begun, until the end of the run at the latest.
    fn write_requests(&mut self, slot: usize) {
        let begun = self.shared.clock.now();
        loop {
            let Self { plan, slots, scratch, tally, .. } = self;
            let Slot { stream: Some(stream), exchange, .. } = &mut slots[slot] else { return };
            if !exchange.has_unsent() {
                return;
            }
            match stream.write(exchange.unsent_bytes(plan, &mut scratch.gathered)) {
                Ok(written) => {
                    tally.slice.bytes_sent += written as u64;
                    exchange.note_written(plan, written);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        // A request of which a part is written is unanswered at the end.
                        if self.is_over() {
                            return;
                        }
                        let waited = self.shared.clock.now().saturating_sub(begun);
                        if waited > nanos(self.plan.timeout) {
                            return self.close(slot, Some(ErrorKind::Timeout));
                        }
                    }
                    _ => return self.close(slot, Some(ErrorKind::Reset)),
                },
            }
        }
    }

    fn await_responses(&mut self, slot: usize) {
        let timeout = nanos(self.plan.timeout);
        let is_late = |exchange: &Exchange, now: Nanos| {
            exchange.oldest_sent().is_some_and(|sent| now.saturating_sub(sent) > timeout)
        };
        while self.slots[slot].exchange.in_flight() > 0 && !self.is_over() {
            let Self { plan, slots, scratch, tally, shared, .. } = self;
            let Slot { stream, exchange, .. } = &mut slots[slot];
            let Some(stream) = stream else { return };
            let kept = exchange.restore(&mut scratch.input);
            let read = stream.read(&mut scratch.input[kept..]);
            let now = shared.clock.now();
            let result = match read {
                Ok(0) => {
                    exchange.put_back(&scratch.input[..kept]);
                    exchange.peer_closed(plan, now, tally).map(|()| Flow::Closing)
                }
                Ok(read) => {
                    tally.slice.bytes_received += read as u64;
                    let input = &mut scratch.input[..kept + read];
                    // A server that sends its answer byte by byte keeps each read short.
                    match exchange.receive(plan, input, now, tally) {
                        Ok(Flow::Open) if is_late(exchange, now) => Err(ErrorKind::Timeout),
                        result => result,
                    }
                }
                Err(error) => {
                    exchange.put_back(&scratch.input[..kept]);
                    match error.kind() {
                        io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted => {
                            let is_late = is_late(exchange, now);
                            if is_late { Err(ErrorKind::Timeout) } else { Ok(Flow::Open) }
                        }
                        _ => Err(ErrorKind::Reset),
                    }
                }
            };
            match result {
                Ok(Flow::Open) => {}
                Ok(Flow::Closing) => self.close(slot, None),
                Err(kind) => self.close(slot, Some(kind)),
            }
        }
        // At the end of the run a request may be unanswered, which is no error.
        let Slot { stream, exchange, .. } = &self.slots[slot];
        if !self.plan.keep_alive && stream.is_some() && exchange.in_flight() == 0 {
            self.close(slot, None);
        }
    }

    /// Returns whether to give up a run without a duration, because the server can no longer be
    /// reached.
    fn server_is_gone(&self) -> bool {
        self.plan.end.after.is_none() && self.server.is_lost()
    }

    /// Returns whether the connection is open, after an attempt to open it, which begins now.
    fn is_connected(&mut self, slot: usize, begun: Nanos) -> bool {
        if self.slots[slot].stream.is_some() {
            return true;
        }
        if begun < self.slots[slot].opens_at {
            return false;
        }
        // A connect cannot be interrupted, so its timeout is at most the rest of the run.
        let left =
            Duration::from_nanos(self.end.saturating_sub(begun)).max(Duration::from_millis(1));
        let plan = self.plan;
        let timeout = plan.timeout.min(left);
        match connect(&plan.address, plan.tls.as_ref(), timeout, READ_TIMEOUT) {
            Ok((stream, is_resumed)) => {
                if let Some(is_resumed) = is_resumed {
                    self.tally.handshake(begun, is_resumed);
                }
                self.server.reached();
                self.shared.note_opened();
                if begun >= self.tally.counts_from {
                    self.tally.slice.connect.record(self.shared.clock.now() - begun);
                }
                let slot = &mut self.slots[slot];
                slot.stream = Some(stream);
                slot.opened += 1;
                slot.retry.opened(slot.exchange.answered);
                true
            }
            Err(error) => {
                self.tally.error(ErrorKind::Connect, 1);
                self.shared.note_refused(self.plan, error.to_string());
                let now = self.shared.clock.now();
                self.server.failed(begun, now, nanos(plan.timeout));
                let slot = &mut self.slots[slot];
                slot.opens_at = now + slot.retry.pause_after_failure();
                false
            }
        }
    }

    /// Closes a connection, and counts the error that was the reason if there was one.
    fn close(&mut self, slot: usize, error: Option<ErrorKind>) {
        let now = self.shared.clock.now();
        self.server.reached();
        let slot = &mut self.slots[slot];
        slot.stream = None;
        slot.opens_at = now + slot.retry.pause_after_close(slot.exchange.answered);
        let lost = slot.exchange.restart(&self.tally);
        self.tally.connection_ended(error, lost);
    }

    fn is_over(&mut self) -> bool {
        let now = self.shared.clock.now();
        if now >= self.outbox.next_tick() {
            if self.outbox.is_counted(now) {
                self.shared.note_errors(self.plan, self.tally.slice.errors.total());
            }
            if self.outbox.begins_to_count(now, self.tally.counts_from) {
                self.cpu = ThreadTime::start();
            }
            self.outbox.deliver(&mut self.tally, now);
        }
        now >= self.end || self.shared.is_stopped()
    }

    fn finish(mut self) -> Finished {
        let now = self.shared.clock.now().min(self.end);
        self.outbox.deliver(&mut self.tally, now);
        let counts_from = self.tally.counts_from;
        let exchanges = || self.slots.iter().map(|slot| &slot.exchange);
        Finished {
            served: exchanges().map(|exchange| exchange.served).collect(),
            opened: self.slots.iter().map(|slot| slot.opened).collect(),
            held: 0,
            unanswered: exchanges().map(|exchange| exchange.unanswered(counts_from)).sum(),
            never_sent: 0,
            longest_wait: longest_wait(
                exchanges().filter_map(Exchange::oldest_sent),
                counts_from,
                now,
            ),
            thread: self.cpu.stop(),
            ended: now,
        }
    }
}

/// Connects within `timeout`. Reads and writes of the socket take `tick` at most. Also returns
/// whether a TLS session was resumed.
pub(crate) fn connect(
    address: &Address,
    tls: Option<&Tls>,
    timeout: Duration,
    tick: Duration,
) -> io::Result<(Box<dyn Socket>, Option<bool>)> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(tick))?;
            stream.set_write_timeout(Some(tick))?;
            let Some(tls) = tls else { return Ok((Box::new(stream), None)) };
            let stream = shake_hands(tls.begin(stream)?, timeout)?;
            let is_resumed = stream.is_resumed();
            Ok((Box::new(stream), Some(is_resumed)))
        }
        Address::Unix(path) => {
            let stream = connect_unix(path, timeout)?;
            stream.set_read_timeout(Some(tick))?;
            stream.set_write_timeout(Some(tick))?;
            Ok((Box::new(stream), None))
        }
    }
}

/// Connects to a Unix socket within `timeout`. With a full backlog the system waits, and limits the
/// wait by the timeout of writes.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    // A timeout that is rounded to zero would be none.
    socket.set_write_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    match socket.connect(&socket2::SockAddr::unix(path)?) {
        Ok(()) => Ok(UnixStream::from(OwnedFd::from(socket))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::TimedOut.into())
        }
        Err(error) => Err(error),
    }
}

fn shake_hands(
    mut stream: TlsStream<TcpStream>,
    timeout: Duration,
) -> io::Result<TlsStream<TcpStream>> {
    let end = Instant::now() + timeout;
    loop {
        match stream.shake_hands() {
            Ok(()) => return Ok(stream),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if Instant::now() < end => {}
                io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                _ => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;
    use std::thread;

    use socket2::{Domain, SockAddr, Socket as Socket2, Type};

    use super::*;

    #[test]
    fn a_connect_to_a_socket_with_a_full_backlog_ends_after_its_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = Socket2::new(Domain::UNIX, Type::STREAM, None).unwrap();
        server.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        server.listen(0).unwrap();
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || {
            let (address, tick) = (Address::Unix(path), Duration::from_millis(50));
            // The connections that fit are kept open.
            let mut open = Vec::new();
            let error = loop {
                match connect(&address, None, tick, tick) {
                    Ok(stream) => open.push(stream),
                    Err(error) => break error.kind(),
                }
            };
            tell.send(error)
        });
        let error = ended.recv_timeout(Duration::from_secs(20));
        assert_eq!(error, Ok(io::ErrorKind::TimedOut));
    }

    #[test]
    fn a_read_from_a_silent_server_ends_after_a_tick() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _server = UnixListener::bind(&path).unwrap();
        let (tell, is_over) = mpsc::channel();
        thread::spawn(move || {
            let (address, tick) = (Address::Unix(path), Duration::from_millis(1));
            let (mut socket, _) = connect(&address, None, Duration::from_secs(60), tick).unwrap();
            tell.send(socket.read(&mut [0; 1]).map_err(|error| error.kind()))
        });
        let read = is_over.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(read, Err(io::ErrorKind::WouldBlock));
    }
}
