//! Tests of the list of running calls, at times that the test chooses and with looks that it makes
//! up.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::RefCell;

use parking_lot::Mutex;

use super::super::slot::{note_request_id, note_trace_id};
use super::super::tests::{Told, look, route, slot};
use super::*;
use crate::execution::key::ExecutionKey;
use crate::execution::stuck::detector::Detector;
use crate::execution::stuck::report::Stuck;

const MILLI: Duration = Duration::from_millis(1);
const FLOOR: Duration = Duration::from_secs(1);

fn of(event_loop: usize, turn: u64) -> Turn {
    Turn { event_loop, turn }
}

fn caught(thread: u32, number: u32, since: Instant) -> Caught {
    Caught { thread, route: route(number), since }
}

fn no_loop(_: usize) -> Option<u64> {
    None
}

/// Says that each thread sleeps for as many seconds as its number.
fn sleep_of(thread: u32) -> Wait {
    Wait::Sleep { time: Some(Duration::from_secs(thread.into())) }
}

fn glance(threads: &[u32]) -> Vec<Wait> {
    threads.iter().copied().map(sleep_of).collect()
}

/// Lists calls, and returns the number of each one's thread.
fn threads(calls: &Calls, now: Instant) -> Vec<u32> {
    let listed = calls.list_with(&glance, &Told::default(), &no_loop, now);
    listed.iter().map(|call| call.thread_id).collect()
}

#[test]
fn calls_are_listed_with_what_their_threads_wait_for() {
    let calls = Calls::new(Some(FLOOR));
    let start = calls.born;
    let (on_pool, short, on_loop) = (slot(1), slot(2), slot(3));
    calls.register(&on_loop);
    assert!(calls.begin(&on_pool, route(7), start + 20 * MILLI));
    assert!(calls.begin(&short, route(8), start + 91 * MILLI));
    calls.lost(of(1, 3), caught(3, 9, start));
    let now = start + 100 * MILLI;
    let listed = calls.list_with(&glance, &Told::default(), &no_loop, now);
    let short_form = |call: &RunningCall| {
        (call.thread_id, call.route.clone().unwrap(), call.running, call.runs, call.wait.clone())
    };
    let expected = [
        (3, "route 9".to_owned(), 100 * MILLI, Runs::OnLoop, Some(sleep_of(3))),
        (1, "route 7".to_owned(), 80 * MILLI, Runs::OnPool, Some(sleep_of(1))),
        (2, "route 8".to_owned(), 9 * MILLI, Runs::OnPool, None),
    ];
    assert_eq!(listed.iter().map(short_form).collect::<Vec<_>>(), expected);
    let names: Vec<_> = listed.iter().map(|call| call.thread.as_deref().unwrap()).collect();
    assert_eq!(names, ["thread 3", "thread 1", "thread 2"]);
    calls.end(&on_pool, route(7), 80 * MILLI);
    calls.end(&short, route(8), 9 * MILLI);
    calls.returned(of(1, 3), now);
    assert_eq!(threads(&calls, now), []);
}

/// A call that was reported is what somebody looks for.
#[test]
fn calls_that_were_reported_or_counted_are_listed() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    for thread in 1..=3 {
        assert!(calls.begin(&slot_that_lives(thread), route(7), start));
        calls.lost(of(1, u64::from(thread) * 2 + 1), caught(thread + 10, 8, start + MILLI));
    }
    Detector::new(&calls, &look, start).sweep(&told, start + 2 * FLOOR);
    assert!(calls.is_idle(), "all were reported or counted");
    let mut listed = threads(&calls, start + 2 * FLOOR);
    listed.sort_unstable();
    assert_eq!(listed, [1, 2, 3, 11, 12, 13]);
}

/// Returns a slot that is never dropped, as that of a thread that hangs.
fn slot_that_lives(thread: u32) -> Arc<ThreadSlot> {
    static SLOTS: Mutex<Vec<Arc<ThreadSlot>>> = Mutex::new(Vec::new());
    let slot = slot(thread);
    SLOTS.lock().push(Arc::clone(&slot));
    slot
}

/// The thread ends the call while it is looked at, and begins another one.
#[test]
fn a_call_that_ends_while_it_is_looked_at_is_not_listed() {
    let calls = Calls::new(Some(FLOOR));
    let (start, now) = (calls.born, calls.born + FLOOR);
    let thread = slot(1);
    assert!(calls.begin(&thread, route(7), start));
    calls.lost(of(1, 3), caught(2, 8, start));
    calls.kept(of(2, 5), caught(3, 9, start));
    let turn = RefCell::new(5);
    let end_all = |threads: &[u32]| {
        calls.end(&thread, route(7), FLOOR);
        assert!(calls.begin(&thread, route(7), start));
        calls.returned(of(1, 3), now);
        *turn.borrow_mut() = 7;
        glance(threads)
    };
    let turn_of = |event_loop| (event_loop == 2).then_some(*turn.borrow());
    let listed = calls.list_with(&end_all, &Told::default(), &turn_of, now);
    assert!(listed.is_empty(), "{listed:?}");
    assert_eq!(threads(&calls, now), [1], "the next call");
}

/// The call is reported while it is looked at. That does not end it.
#[test]
fn a_call_that_is_reported_while_it_is_looked_at_is_listed() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let (start, now) = (calls.born, calls.born + 10 * FLOOR);
    let thread = slot(1);
    assert!(calls.begin(&thread, route(7), start));
    calls.lost(of(1, 3), caught(2, 8, start));
    let report = |threads: &[u32]| {
        Detector::new(&calls, &look, start).sweep(&told, now);
        glance(threads)
    };
    let listed = calls.list_with(&report, &Told::default(), &no_loop, now);
    assert_eq!(told.take().len(), 2);
    assert_eq!(listed.iter().map(|call| call.thread_id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_call_that_no_other_thread_could_relieve_is_listed_while_it_has_its_loop() {
    let calls = Calls::new(Some(FLOOR));
    let now = calls.born + FLOOR;
    // The watchdog records the call again at each check.
    for check in 0..10 {
        calls.kept(of(1, 3), caught(1, 7, calls.born + check * MILLI));
        calls.kept(of(2, 3), caught(2, 7, calls.born));
    }
    let turn_of = |event_loop| Some(if event_loop == 1 { 3 } else { 4 });
    let listed = calls.list_with(&glance, &Told::default(), &turn_of, now);
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].thread_id, listed[0].running), (1, FLOOR));
    assert_eq!(listed[0].runs, Runs::OnLoop);
    assert_eq!(calls.kept.lock().len(), 1, "what has ended is forgotten");
    calls.kept(of(1, 5), caught(1, 8, now));
    assert_eq!(calls.kept.lock().len(), 1, "one entry per loop");
}

#[test]
fn at_most_64_calls_are_listed_and_looked_at_the_longest_first() {
    let calls = Calls::new(Some(FLOOR));
    let all: Vec<_> = (1..=100).map(slot).collect();
    for thread in &all {
        // The last thread has been running for longest.
        let since = calls.born + (100 - thread.thread) * MILLI;
        assert!(calls.begin(thread, route(thread.thread), since));
    }
    let looked_at = RefCell::new(Vec::new());
    let glance = |threads: &[u32]| {
        looked_at.borrow_mut().extend_from_slice(threads);
        glance(threads)
    };
    let now = calls.born + FLOOR;
    let listed = calls.list_with(&glance, &Told::default(), &no_loop, now);
    let expected: Vec<u32> = (37..=100).rev().collect();
    assert_eq!(listed.iter().map(|call| call.thread_id).collect::<Vec<_>>(), expected);
    assert_eq!(*looked_at.borrow(), expected);
}

#[test]
fn threads_of_short_calls_are_not_looked_at() {
    let calls = Calls::new(Some(FLOOR));
    let thread = slot(1);
    assert!(calls.begin(&thread, route(7), calls.born));
    let never = |_: &[u32]| -> Vec<Wait> { panic!("no call is old enough") };
    let now = calls.born + 9 * MILLI;
    let listed = calls.list_with(&never, &Told::default(), &no_loop, now);
    assert_eq!((listed.len(), listed[0].wait.clone()), (1, None));
}

/// Connections that are open for days must not hide a handler that hangs.
#[test]
fn calls_that_hold_their_threads_on_purpose_come_last_and_are_not_reported() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    let (detached, thread) = (slot(1), slot(2));
    let guard = calls.begin_detached(&detached, route(7), start);
    assert!(calls.is_idle());
    assert!(calls.begin(&thread, route(8), start + FLOOR));
    let listed = calls.list_with(&glance, &Told::default(), &no_loop, start + 2 * FLOOR);
    let short_form = |call: &RunningCall| (call.thread_id, call.is_detached, call.running);
    let expected = [(2, false, FLOOR), (1, true, 2 * FLOOR)];
    assert_eq!(listed.iter().map(short_form).collect::<Vec<_>>(), expected);
    calls.end(&thread, route(8), FLOOR);
    Detector::new(&calls, &look, start).sweep(&told, start + 100 * FLOOR);
    assert_eq!(told.take(), []);
    // A call that the thread runs within the detached one leaves that one in the slot.
    assert!(!calls.begin(&detached, route(9), start));
    drop(calls.begin_detached(&detached, route(9), start));
    assert_eq!(threads(&calls, start + FLOOR), [1]);
    drop(guard);
    assert_eq!(threads(&calls, start + FLOOR), []);
}

#[test]
fn calls_are_listed_if_nothing_is_reported() {
    let calls = Calls::new(None);
    let now = calls.born + FLOOR;
    let thread = slot(1);
    assert!(calls.begin(&thread, route(7), calls.born));
    calls.lost(of(1, 3), caught(2, 8, calls.born));
    assert_eq!(threads(&calls, now), [1, 2]);
    calls.end(&thread, route(7), FLOOR);
    calls.returned(of(1, 3), now);
    assert_eq!(threads(&calls, now), []);
}

#[test]
fn a_thread_of_another_server_is_not_listed() {
    let (ours, theirs) = (Calls::new(None), Calls::new(None));
    let thread = slot(1);
    ours.register(&thread);
    assert!(theirs.begin(&thread, route(7), theirs.born));
    assert_eq!(threads(&ours, ours.born + FLOOR), []);
    assert_eq!(threads(&theirs, theirs.born + FLOOR), [1]);
}

struct Panics;

impl Reporter for Panics {
    fn name_of(&self, _: RouteId) -> Option<String> {
        panic!("the name of a route")
    }

    fn calls_on_loops(&self, _: ExecutionKey) -> u64 {
        0
    }

    fn tell(&self, _: &Stuck) {}
}

#[test]
fn a_service_that_panics_when_it_names_a_route_costs_the_name_only() {
    let calls = Calls::new(None);
    let thread = slot(1);
    assert!(calls.begin(&thread, route(7), calls.born));
    let listed = calls.list_with(&glance, &Panics, &no_loop, calls.born);
    assert_eq!((listed.len(), listed[0].route.clone()), (1, None));
}

#[test]
fn the_ids_of_a_request_are_those_of_its_thread() {
    let calls = Calls::new(None);
    // The slot of this thread, which is the only one that can note an ID.
    let thread = ThreadSlot::of_this_thread(|| 77);
    calls.lost(of(1, 3), caught(thread.thread, 7, calls.born));
    calls.register(&thread);
    let (noted, noted_trace) = (note_request_id("17"), note_trace_id(18));
    let ids = || {
        let listed = calls.list_with(&glance, &Told::default(), &no_loop, calls.born);
        (listed[0].request_id.clone(), listed[0].trace_id.clone())
    };
    let trace = "00000000000000000000000000000012";
    assert_eq!(ids(), (Some("17".to_owned()), Some(trace.to_owned())));
    drop((noted, noted_trace));
    assert_eq!(ids(), (None, None));
}
