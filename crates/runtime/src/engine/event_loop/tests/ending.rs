//! How a loop ends, and how it continues the connections of another process.

use super::*;
use crate::budget::throttle::tests::counting_lines;
use crate::engine::handover::Resumed;
use crate::execution::watchdog::Watched;
use crate::service::latch::Latch;

/// A loop that drains from `Instant::now()` on, and the time at which its drain ends.
fn draining() -> (EventLoop, Instant) {
    let mut event_loop = event_loop();
    event_loop.handle.engine.shutdown(Duration::from_secs(60));
    event_loop.continue_to_stop(Instant::now());
    assert!(event_loop.is_draining);
    let deadline = event_loop.handle.engine.drain_deadline().unwrap();
    (event_loop, deadline)
}

#[test]
fn a_loop_has_drained_when_no_connection_is_left_anywhere() {
    let now = Instant::now();
    assert!(draining().0.has_drained(now));

    let (mut event_loop, _) = draining();
    let (accepted_one, _client) = accepted();
    event_loop.waiting = Some(accepted_one);
    assert!(!event_loop.has_drained(now), "one waits for room");

    let (mut event_loop, _) = draining();
    event_loop.slab.reserve();
    assert!(!event_loop.has_drained(now), "another thread has one");

    let (mut event_loop, _) = draining();
    let (accepted_one, _client) = accepted();
    event_loop.handle.send(Message::Adopt(accepted_one));
    assert!(!event_loop.has_drained(now), "one has come meanwhile");
}

#[test]
fn a_drain_serves_each_connection_once_more() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (token, _client) = add_idle(&mut event_loop, now);
    event_loop.handle.engine.shutdown(Duration::from_secs(60));
    event_loop.continue_to_stop(now);
    let ready = event_loop.ready.pop().unwrap();
    assert_eq!((ready.token, ready.readiness), (token, Readiness::Drain));
    event_loop.continue_to_stop(now);
    assert!(event_loop.ready.pop().is_none(), "once");
}

#[test]
fn handlers_that_still_run_at_the_end_of_a_drain_are_told() {
    let (mut event_loop, deadline) = draining();
    let (latch, token) = (Arc::new(Latch::new()), event_loop.slab.reserve());
    event_loop.watch_client(token, Arc::clone(&latch));
    assert!(!event_loop.has_drained(deadline - millis(1)));
    assert!(!latch.is_set());
    assert!(event_loop.has_drained(deadline));
    assert!(latch.is_set());
}

#[test]
fn a_handler_learns_that_its_client_has_gone_while_it_runs() {
    let mut event_loop = event_loop();
    let [gone_before, goes, returned] = [(); 3].map(|()| event_loop.slab.reserve());
    let latches = [(); 3].map(|()| Arc::new(Latch::new()));
    event_loop.slab.take(gone_before, Missed::IoAndEnd);
    event_loop.slab.take(goes, Missed::Io);
    for (token, latch) in [gone_before, goes, returned].into_iter().zip(&latches) {
        event_loop.watch_client(token, Arc::clone(latch));
    }
    let told = || latches.each_ref().map(|latch| latch.is_set());
    assert_eq!(told(), [true, false, false]);
    event_loop.unwatch_client(returned);
    event_loop.client_has_gone(goes);
    event_loop.client_has_gone(returned);
    assert_eq!(told(), [true, true, false]);
    assert_eq!(event_loop.handle.engine.counters.cancelled.get(), 2);
}

/// Other threads have two connections when an event comes for each. The loop notes for later what
/// they have missed, and tells the handler of the one whose peer has gone.
#[test]
fn only_the_end_of_a_taken_connection_is_the_end_of_its_client() {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let [sends, ends] = [(); 2].map(|()| event_loop.slab.reserve());
    let (parked, _client) = add_idle(&mut event_loop, now);
    let latches = [(); 2].map(|()| Arc::new(Latch::new()));
    for (token, latch) in [sends, ends].into_iter().zip(&latches) {
        event_loop.watch_client(token, Arc::clone(latch));
    }
    event_loop.ready.push(sends, Readiness::Io);
    event_loop.ready.push(ends, Readiness::IoAndEnd);
    event_loop.ready.push(parked, Readiness::Io);
    let Turn::Serve(connection, Readiness::Io) = event_loop.next(&mut Clock::new()) else {
        panic!("the third one is served");
    };
    assert_eq!(connection.token(), parked);
    assert_eq!(latches.each_ref().map(|latch| latch.is_set()), [false, true]);
    let missed = [sends, ends].map(|token| event_loop.slab.take_missed(token));
    assert_eq!(missed, [Missed::Io, Missed::IoAndEnd]);
}

/// Continues a connection of another process. Returns when its head must be there.
fn resumed(head_ends_in: Option<Duration>) -> Duration {
    let (mut event_loop, now) = (event_loop(), Instant::now());
    let (accepted, _client) = accepted();
    let resumed = Resumed { accepted, leftover: b"GET".to_vec(), head_ends_in };
    let Turn::Serve(connection, Readiness::Io) = event_loop.resume(resumed, now) else {
        panic!("it is served");
    };
    assert_eq!(connection.leftover.as_slice(), b"GET");
    assert_eq!(event_loop.handle.engine.counters.connections.get(), 1);
    let waits_for = connection.guest.waits_for(false);
    assert_eq!(waits_for == crate::protocol::Waiting::Head, head_ends_in.is_some());
    connection.deadline - now
}

#[test]
fn another_process_may_shorten_the_time_for_a_head_but_not_extend_it() {
    assert_eq!(resumed(Some(millis(1500))), millis(1500));
    assert_eq!(resumed(Some(HEAD_TIMEOUT + millis(1))), HEAD_TIMEOUT);
    assert_eq!(resumed(None), HEAD_TIMEOUT);
}

#[test]
fn a_server_ends_with_the_last_of_its_loops() {
    let [first, second] = event_loops(config());
    let engine = Arc::clone(&first.handle.engine);
    drop(first);
    assert_ne!(engine.phase(), crate::metrics::Phase::Stopped);
    drop(second);
    assert_eq!(engine.phase(), crate::metrics::Phase::Stopped);
}

#[test]
fn a_loop_that_sleeps_learns_of_each_change_of_the_end() {
    let [mut event_loop] = event_loops(config().lame_duck(Duration::from_secs(100)));
    let engine = Arc::clone(&event_loop.handle.engine);
    assert!(!was_woken(&mut event_loop));
    engine.stop();
    assert!(was_woken(&mut event_loop), "its timeout must include the end of the lame duck");
    engine.shutdown(Duration::from_secs(60));
    assert!(was_woken(&mut event_loop));
    engine.shutdown(Duration::ZERO);
    assert!(was_woken(&mut event_loop), "the drain ends sooner");
}

#[test]
fn handlers_that_are_given_up_are_named_once() {
    let (mut event_loop, deadline) = draining();
    event_loop.slab.reserve();
    event_loop.handle.note_lost(1, Instant::now());
    counting_lines("handlers", |lines| {
        for (now, expected) in [(deadline - millis(1), 0), (deadline, 1), (deadline, 1)] {
            event_loop.has_drained(now);
            assert_eq!(lines(), expected);
        }
    });
}

#[test]
fn a_call_that_keeps_its_loop_is_listed_with_the_time_that_it_has_been_running() {
    let (event_loop, begun) = (event_loop(), Instant::now());
    let engine = Arc::clone(&event_loop.handle.engine);
    // So no thread can lead the loop.
    engine.pool.close();
    while begun.elapsed() < millis(2) {
        std::thread::yield_now();
    }
    assert!(event_loop.handle.hand_over(event_loop.handle.turn(), millis(2)));
    let calls = engine.calls.list(&*engine, &|_| Some(event_loop.handle.turn()), Instant::now());
    assert_eq!(calls.iter().map(|call| call.running >= millis(2)).collect::<Vec<_>>(), [true]);
}
