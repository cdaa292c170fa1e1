//! Tests of requests that wait for their handler.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::{TcpListener, TcpStream};
use std::thread;

use socket2::SockRef;

use super::*;
use crate::budget::clients::{Clients, CountsFor};
use crate::config::ServerConfig;
use crate::engine::event_loop::EventLoop;
use crate::engine::listener::{Accepted, Entry};
use crate::engine::pull_queue::PullQueue;
use crate::engine::{Backend, Engine, worker};
use crate::execution::key::ExecutionKey;
use crate::service::body::Body;
use crate::service::response::Response;
use crate::service::stopping::Stopping;
use crate::service::tcp::Calls;
use crate::transport::Transport;

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

const MEMORY: usize = 1 << 20;

fn event_loop() -> EventLoop {
    let backend = Backend::Program(Arc::new(PullQueue::new(1, DEADLINE)));
    let config = ServerConfig::default().memory_max(MEMORY);
    EventLoop::new(&Engine::new(config, backend, Stopping::new())).unwrap()
}

fn request() -> Request {
    http::Request::get("/").body(Body::default()).unwrap().try_into().unwrap()
}

/// A connection of a guest with several exchanges, which needs no wake-up.
struct NoLoop;

impl crate::service::mailbox::WakeConnection for NoLoop {
    fn wake_connection(&self, _: usize) {}
}

/// Returns a call of a guest, and where its answer will be.
fn call_of_guest(event_loop: &EventLoop, account: Arc<Account>) -> (Call, Calls) {
    let site = Arc::new(Site::new(|_: Request| Response::new(204)));
    let mut calls = Calls::new(std::sync::Weak::<NoLoop>::new(), 0);
    calls.ask(1, request(), Arc::clone(&site));
    let ask = calls.next_asked().unwrap();
    let loop_handle = Arc::clone(event_loop.handle());
    let route = Route::learned(ExecutionKey::at(1));
    let asker = Asker { loop_handle, peer: Peer::Unix, account, site, route, slot: ask.slot };
    (Call::new(ask.request, AnswerTo::Guest(asker)), calls)
}

/// Returns a call of a connection, and the socket of its client.
fn call_of_connection(event_loop: &EventLoop) -> (Call, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, address) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let accepted = Accepted {
        transport: Transport::tcp(mio::net::TcpStream::from_std(stream)),
        peer: Peer::Tcp(address),
        entry: Entry {
            expects_proxy_header: false,
            #[cfg(feature = "tls")]
            tls: None,
        },
        counts_for: CountsFor::Nobody,
    };
    let loop_handle = Arc::clone(event_loop.handle());
    let connection = Box::new(Connection::new(accepted, loop_handle, 0, Instant::now()));
    let route = Route::learned(ExecutionKey::at(1));
    let reply_to = ReplyTo { connection, route, stream: None };
    (Call::new(request(), AnswerTo::Connection(reply_to)), client)
}

#[test]
fn a_request_is_told_how_long_it_has_waited() {
    let event_loop = event_loop();
    let (mut call, _) = call_of_guest(&event_loop, event_loop.handle().engine.account(None));
    assert!(call.end_wait().is_none());
    assert_eq!(call.request.queued(), Duration::ZERO, "it did not wait");
    let begun = Instant::now();
    call.waits(Lacks::Permit);
    while begun.elapsed() < Duration::from_micros(10) {
        thread::yield_now();
    }
    assert!(call.end_wait().is_none());
    assert!(call.request.queued() > Duration::ZERO);
}

#[test]
fn a_request_that_waits_is_charged_until_its_handler_begins() {
    let event_loop = event_loop();
    let memory = &event_loop.handle().engine.memory;
    let account = event_loop.handle().engine.account(None);
    let (mut call, _) = call_of_guest(&event_loop, Arc::clone(&account));
    assert!(call.charge());
    assert_eq!(memory.used(), call.request.uncharged_bytes());
    drop(call.into_parts());
    assert_eq!(memory.used(), 0);
    let mut others = Charge::default();
    others.set(&account, MEMORY);
    assert!(!call_of_guest(&event_loop, account).0.charge(), "there is no memory for it");
}

#[test]
fn a_request_is_one_of_the_client_of_its_connection() {
    let event_loop = event_loop();
    let client = Arc::new(Clients::new(1)).admit([192, 0, 2, 1].into()).unwrap();
    let account = event_loop.handle().engine.account(client);
    let (call, _) = call_of_guest(&event_loop, Arc::clone(&account));
    assert_eq!(call.client().map(|of| of.client()), account.client().map(|of| of.client()));
    assert!(call.client().is_some());
}

#[test]
fn the_client_of_a_request_that_has_waited_for_long_is_checked() {
    let event_loop = event_loop();
    let (mut call, client) = call_of_connection(&event_loop);
    let is_checked = |call: &mut Call, since: Instant| {
        call.waits_since = Some(since);
        call.end_wait().is_some()
    };
    let begun = Instant::now();
    while begun.elapsed() < LOOK_AFTER {
        thread::yield_now();
    }
    assert!(!is_checked(&mut call, begun), "it is there");
    // A reset. The system reports it once.
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let deadline = begun + DEADLINE;
    while !is_checked(&mut call, begun) {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    let (mut call, client) = call_of_connection(&event_loop);
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    // As if it would begin to wait in a minute, so that it has not waited on any machine.
    assert!(!is_checked(&mut call, Instant::now() + DEADLINE), "a check costs a system call");
}

#[test]
fn a_call_of_a_guest_that_the_pool_refuses_is_answered_as_any_other() {
    let event_loop = event_loop();
    let account = event_loop.handle().engine.account(None);
    let (call, mut calls) = call_of_guest(&event_loop, account);
    worker::refuse(call);
    let answer = calls.next_answer().map(|(number, response)| (number, response.status().as_u16()));
    assert_eq!(answer, Some((1, 503)));
}
