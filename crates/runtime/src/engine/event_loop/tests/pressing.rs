//! Which connections expire while memory is short.

use super::*;
use crate::budget::account::Charge;

const MEMORY: usize = 1 << 20;

/// Makes memory short until the result is dropped.
fn shortage(event_loop: &EventLoop) -> Charge {
    let engine = &event_loop.handle.engine;
    let mut charge = Charge::default();
    charge.add(&engine.account(None), MEMORY / 4 * 3);
    assert!(engine.memory.is_short());
    charge
}

fn short_of_memory() -> ServerConfig {
    config().memory_max(MEMORY)
}

/// Returns the tokens of the connections that have expired.
fn expired(event_loop: &mut EventLoop) -> Vec<usize> {
    let mut tokens = Vec::new();
    while let Some(Ready { token, readiness }) = event_loop.ready.pop() {
        assert_eq!(readiness, Readiness::Expired);
        tokens.push(token);
    }
    tokens
}

#[test]
fn a_head_has_a_second_while_memory_is_short_and_an_idle_connection_holds_none() {
    let ([mut event_loop], now) = (event_loops(short_of_memory()), Instant::now());
    let (late, _late) = add_new(&mut event_loop, now);
    let _in_time = add_new(&mut event_loop, now + millis(1));
    let _idle = add_idle(&mut event_loop, now);
    assert_eq!(event_loop.expire_under_pressure(now + millis(1000)), None);
    let _charge = shortage(&event_loop);
    let then = now + millis(1000);
    assert_eq!(event_loop.expire_under_pressure(then), Some(millis(250)));
    assert_eq!(expired(&mut event_loop), [late]);
    assert_eq!(event_loop.slab.parked_mut(late).unwrap().deadline, then);
}

#[cfg(feature = "spool")]
#[test]
fn a_shortage_of_disk_space_expires_no_head() {
    let ([mut event_loop], now) = (event_loops(short_of_memory()), Instant::now());
    let _head = add_new(&mut event_loop, now);
    event_loop.handle.engine.memory.set_disk_short(true);
    assert_eq!(event_loop.expire_under_pressure(now + millis(2000)), Some(millis(250)));
    assert_eq!(expired(&mut event_loop), []);
}

#[test]
fn connections_are_checked_four_times_a_second_while_memory_is_short() {
    let ([mut event_loop], now) = (event_loops(short_of_memory()), Instant::now());
    let (first, _first) = add_new(&mut event_loop, now);
    let (second, _second) = add_new(&mut event_loop, now + millis(1));
    let _charge = shortage(&event_loop);
    event_loop.expire_under_pressure(now + millis(1000));
    assert_eq!(expired(&mut event_loop), [first]);
    assert_eq!(event_loop.expire_under_pressure(now + millis(1100)), Some(millis(150)));
    assert_eq!(expired(&mut event_loop), []);
    event_loop.expire_under_pressure(now + millis(1250));
    assert!(expired(&mut event_loop).contains(&second));
}
