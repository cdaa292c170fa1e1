//! Tests of what a server reports about itself.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::*;
use crate::config::ServerConfig;
use crate::engine::exchange::ReplyTo;
use crate::engine::incoming::IncomingRequest;
use crate::engine::tests::{connection, event_loops, pulled};
use crate::execution::key::Route;
use crate::service::body::Body;

#[test]
fn a_server_that_has_ended_has_no_loops() {
    let engine = pulled(ServerConfig::default());
    let [first, second] = event_loops(&engine);
    assert_eq!(engine.metrics().loops().len(), 2);
    let handle = Arc::clone(first.handle());
    drop((first, second));
    assert_eq!(engine.metrics().phase, Phase::Stopped);
    assert_eq!(engine.metrics().loops().len(), 0, "its last connection may still have the handle");
    drop(handle);
}

#[test]
fn bytes_are_those_of_all_loops_and_of_other_threads() {
    let engine = pulled(ServerConfig::default());
    let [first, second] = event_loops(&engine);
    let moved = || {
        let metrics = engine.metrics();
        [metrics.bytes_read, metrics.bytes_written]
    };
    first.handle().moved.add(Moved { read: 1, written: 20 });
    second.handle().moved.add(Moved { read: 300, written: 4000 });
    assert_eq!(moved(), [301, 4020]);
    engine.counters.count_moved(Moved { read: 50_000, written: 600_000 });
    assert_eq!(moved(), [50_301, 604_020]);
    let stream = engine.streams.open(None).unwrap();
    stream.count_read(7_000_000);
    stream.count_written(80_000_000);
    assert_eq!(moved(), [7_050_301, 80_604_020], "a handler reads and writes by itself");
    drop(first);
    assert_eq!(moved(), [7_050_301, 80_604_020], "a loop that has ended leaves its count");
}

#[test]
fn single_numbers_are_those_of_the_metrics() {
    let engine = pulled(ServerConfig::default());
    engine.counters.routes_learned.add(20);
    engine.counters.routes_forgotten.add(1);
    let Metrics { waiting, routes_learned, routes_forgotten, .. } = engine.metrics();
    assert_eq!((ServerState::waiting(&*engine), waiting), (0, 0));
    assert_eq!(ServerState::route_moves(&*engine), 21);
    assert_eq!(routes_learned + routes_forgotten, 21);
}

#[test]
fn requests_that_the_program_has_not_pulled_are_counted() {
    let engine = pulled(ServerConfig::default());
    let Backend::Program(queue) = &engine.backend else { panic!("it is pulled") };
    let [event_loop] = event_loops(&engine);
    let (connection, _client) = connection(&event_loop);
    let request = http::Request::get("/").body(Body::default()).unwrap().try_into().unwrap();
    let route = Route::learned(ExecutionKey::at(1));
    let reply_to = ReplyTo { connection, route, stream: None };
    assert!(queue.send(IncomingRequest::new(request, reply_to)).is_ok());
    assert_eq!(engine.metrics().incoming, 1);
    drop(queue.recv());
    assert_eq!(engine.metrics().incoming, 0);
}

#[cfg(feature = "waits")]
#[test]
fn connections_of_loops_that_do_not_respond_count_as_others() {
    let (sender, receiver) = crossbeam_channel::unbounded();
    let gathered = |parked| gather(&receiver, parked, Instant::now());
    let of_loop = |request, head| IdleConnections { request, head, ..IdleConnections::default() };
    sender.send(of_loop(3, 4)).unwrap();
    sender.send(of_loop(10, 0)).unwrap();
    assert_eq!(gathered(20), IdleConnections { other: 3, ..of_loop(13, 4) });
    // More connections may wait than the loops knew of when they were asked.
    sender.send(of_loop(7, 0)).unwrap();
    assert_eq!(gathered(5), of_loop(7, 0));
    assert_eq!(gathered(5), IdleConnections { other: 5, ..of_loop(0, 0) });
    sender.send(of_loop(3, 4)).unwrap();
    drop(sender);
    assert_eq!(gathered(20), of_loop(3, 4), "all have responded: the others have come to an end");
}
