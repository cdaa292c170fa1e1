//! Senders: other threads that send to a connection of a raw service.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write, read_to_string};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{Io, Protocol, SendError, Sender};
use filoplume_runtime::{Peer, ServerConfig};
use filoplume_tests::{DEADLINE, TestServer, eventually, receive};

/// A protocol that gives its sender to the test.
struct Pushed(mpsc::Sender<Sender>);

impl Protocol for Pushed {
    fn open(&mut self, io: &mut Io<'_>) {
        self.0.send(io.sender()).unwrap();
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.send(bytes);
        bytes.len()
    }
}

fn pushed(config: ServerConfig) -> (TestServer, Receiver<Sender>) {
    let (connected, senders) = mpsc::channel();
    (TestServer::raw(config, move |_: Peer| Pushed(connected.clone())), senders)
}

#[test]
fn other_threads_send_in_order_and_beside_the_protocol() {
    let (server, senders) = pushed(ServerConfig::default());
    let mut clients = Vec::new();
    let mut threads = Vec::new();
    for _ in 0..20 {
        clients.push(server.stream());
        let sender = senders.recv_timeout(DEADLINE).unwrap();
        threads.push(thread::spawn(move || {
            for number in 0..500 {
                sender.send(format!("{number}\n")).unwrap();
            }
        }));
    }
    for client in &mut clients {
        client.write_all(b"echo\n").unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for client in clients {
        let lines: Vec<_> = BufReader::new(client).lines().take(501).map(Result::unwrap).collect();
        let pushed: Vec<_> = lines.iter().filter(|line| *line != "echo").cloned().collect();
        let expected: Vec<_> = (0..500).map(|number| number.to_string()).collect();
        assert_eq!(pushed, expected);
    }
}

#[test]
fn the_mailbox_of_a_peer_that_does_not_read_is_bounded() {
    let (server, senders) = pushed(ServerConfig::default());
    let client = server.stream();
    let sender = senders.recv_timeout(DEADLINE).unwrap();
    let mut sent = 0;
    let started = Instant::now();
    // The sockets hold some bytes, and one mailbox is being sent.
    while sent < 64 * 1024 * 1024 && started.elapsed() < DEADLINE {
        match sender.send(vec![b'x'; 10_000]) {
            Ok(()) => sent += 10_000,
            Err(error) => {
                assert_eq!(error, SendError::Full);
                thread::sleep(Duration::from_millis(50));
                if sender.send(vec![b'x'; 10_000]).is_err() {
                    break;
                }
                sent += 10_000;
            }
        }
    }
    assert!(sent < 32 * 1024 * 1024, "{sent} bytes were taken");
    sender.close();
    assert_eq!(sender.send("x"), Err(SendError::Closed));
    let all = read_to_string(client).unwrap();
    assert_eq!(all.len(), sent, "all that was taken arrives");
    eventually("the sender knows", || !sender.is_open());
}

#[test]
fn a_sender_of_a_closed_connection_returns_an_error() {
    let (server, senders) = pushed(ServerConfig::default());
    let client = server.stream();
    let sender = senders.recv_timeout(DEADLINE).unwrap();
    assert!(sender.is_open());
    drop(client);
    eventually("the connection is closed", || !sender.is_open());
    assert_eq!(sender.send("x"), Err(SendError::Closed));
    // Another connection may have its token now, and gets nothing.
    let mut next = server.stream();
    let next_sender = senders.recv_timeout(DEADLINE).unwrap();
    sender.close();
    let _ = sender.send("not for you");
    next_sender.send("for you").unwrap();
    let mut received = [0; 7];
    next.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"for you");
    drop(server);
    eventually("the server has ended", || next_sender.send("x") == Err(SendError::Closed));
}

/// Gives its sender to the test, and its connection to a thread when bytes arrive.
struct LendsAndDetaches(mpsc::Sender<Sender>);

impl Protocol for LendsAndDetaches {
    fn open(&mut self, io: &mut Io<'_>) {
        self.0.send(io.sender()).unwrap();
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let sender = io.sender();
        // Another thread could do the same after this call and before the connection is detached.
        sender.send("letter ").unwrap();
        io.detach(|mut stream| stream.write_all(b"thread").unwrap());
        bytes.len()
    }
}

#[test]
fn bytes_from_senders_are_sent_before_a_thread_gets_the_connection() {
    let (lend, lent) = mpsc::channel();
    let server =
        TestServer::raw(ServerConfig::default(), move |_: Peer| LendsAndDetaches(lend.clone()));
    let mut client = server.stream();
    let sender: Sender = lent.recv_timeout(DEADLINE).unwrap();
    client.write_all(b"-").unwrap();
    assert_eq!(read_to_string(client).unwrap(), "letter thread");
    assert_eq!(sender.send("late"), Err(SendError::Closed));
}

/// A protocol that notifies itself again and again.
struct AlwaysNotified {
    over: Arc<AtomicBool>,
    sender: Option<Sender>,
}

impl Protocol for AlwaysNotified {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        if bytes == b"again" {
            let sender = io.sender();
            sender.notify();
            self.sender = Some(sender);
        } else {
            io.send(bytes);
        }
        bytes.len()
    }

    fn notified(&mut self, _: &mut Io<'_>) {
        if let Some(sender) = self.sender.as_ref().filter(|_| !self.over.load(Ordering::SeqCst)) {
            sender.notify();
        }
    }

    fn notified_may_block(&self) -> bool {
        false
    }
}

/// Regression: a loop that always had a message never polled its sockets.
#[test]
fn a_loop_with_a_message_at_any_time_serves_its_sockets() {
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let protocol = move |_: Peer| AlwaysNotified { over: Arc::clone(&is_over), sender: None };
    let server = TestServer::raw(ServerConfig::default().event_loops(1), protocol);
    let mut others = [server.stream(), server.stream()];
    for other in &mut others {
        other.write_all(b"echo").unwrap();
        assert_eq!(receive(other, 4), b"echo");
    }
    let mut busy = server.stream();
    busy.write_all(b"again").unwrap();
    for _ in 0..20 {
        for other in &mut others {
            other.write_all(b"echo").unwrap();
            assert_eq!(receive(other, 4), b"echo");
        }
        let mut newcomer = server.stream();
        newcomer.write_all(b"new").unwrap();
        assert_eq!(receive(&mut newcomer, 3), b"new");
    }
    over.store(true, Ordering::SeqCst);
}
