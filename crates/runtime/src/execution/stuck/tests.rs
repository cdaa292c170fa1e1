//! Tests of the detector, at times that the test chooses.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::detector::{Detector, Reporter};
use super::report::Stuck;
use super::wait::Wait;
use super::*;
use crate::execution::key::{ExecutionKey, Route};

const MILLI: Duration = Duration::from_millis(1);
const FLOOR: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(in crate::execution::stuck) struct Told(Mutex<Vec<Stuck>>);

impl Told {
    /// Returns what was reported since the last call: the route, and `None` at the start of a call
    /// or how long it took in all.
    pub(in crate::execution::stuck) fn take(&self) -> Vec<(String, Option<Duration>)> {
        let told = std::mem::take(&mut *self.0.lock());
        let short = |stuck: Stuck| (stuck.route.unwrap(), stuck.has_ended.then_some(stuck.running));
        told.into_iter().map(short).collect()
    }

    fn last(&self) -> Stuck {
        self.0.lock().last().unwrap().clone()
    }
}

impl Reporter for Told {
    fn name_of(&self, route: RouteId) -> Option<String> {
        route.number().map(|number| format!("route {number}"))
    }

    fn calls_on_loops(&self, _: ExecutionKey) -> u64 {
        16
    }

    fn tell(&self, stuck: &Stuck) {
        self.0.lock().push(stuck.clone());
    }
}

pub(in crate::execution::stuck) fn route(number: u32) -> RouteId {
    Route { number, ..Route::learned(ExecutionKey::numbered(number)) }.id()
}

pub(in crate::execution::stuck) fn slot(thread: u32) -> Arc<ThreadSlot> {
    Arc::new(ThreadSlot::new(thread, Some(format!("thread {thread}"))))
}

fn began(number: u32) -> (String, Option<Duration>) {
    (format!("route {number}"), None)
}

fn ended(number: u32, took: Duration) -> (String, Option<Duration>) {
    (format!("route {number}"), Some(took))
}

pub(in crate::execution::stuck) fn look(_: u32) -> (Wait, Vec<String>) {
    (Wait::Computing, Vec::new())
}

#[test]
fn a_late_call_is_reported_once_and_again_at_its_end() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    let mut detector = Detector::new(&calls, &look, start);
    let thread = slot(1);
    assert!(calls.is_idle());
    assert!(calls.begin(&thread, route(7), start));
    assert!(!calls.is_idle());
    assert_eq!(detector.sweep(&told, start + 999 * MILLI), Some(start + FLOOR));
    assert_eq!(told.take(), []);
    assert_eq!(detector.sweep(&told, start + FLOOR), None);
    let stuck = told.last();
    assert_eq!((stuck.wait, stuck.thread.as_deref()), (Some(Wait::Computing), Some("thread 1")));
    assert_eq!(told.take(), [began(7)]);
    assert!(calls.is_idle(), "a call that was reported needs no further sweep");
    detector.sweep(&told, start + 5 * FLOOR);
    assert_eq!(told.take(), []);
    calls.end(&thread, route(7), 6 * FLOOR);
    assert!(!calls.is_idle());
    detector.sweep(&told, start + 7 * FLOOR);
    let stuck = told.last();
    assert_eq!((stuck.number, stuck.wait), (1, None));
    assert_eq!(told.take(), [ended(7, 6 * FLOOR)]);
    assert!(calls.is_idle());
}

#[test]
fn a_route_that_always_takes_that_long_is_not_reported() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let mut detector = Detector::new(&calls, &look, calls.born);
    let thread = slot(1);
    let mut now = calls.born;
    let mut reports = Vec::new();
    for call in 0..20 {
        assert!(calls.begin(&thread, route(7), now));
        for _ in 0..50 {
            now += 100 * MILLI;
            detector.sweep(&told, now);
            if told.take().iter().any(|(_, took)| took.is_none()) {
                reports.push(call);
            }
        }
        calls.end(&thread, route(7), 50 * 100 * MILLI);
    }
    // A known route has become five times as slow. At the second call it may take 2 s, at the third
    // 4 s, then 8 s.
    assert_eq!(reports, [0, 1, 2]);
}

#[test]
fn short_calls_are_not_reported_and_leave_the_detector_idle() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let mut detector = Detector::new(&calls, &look, calls.born);
    let thread = slot(1);
    for call in 0..100 {
        let now = calls.born + call * FLOOR;
        assert!(calls.begin(&thread, route(call % 3), now));
        assert!(detector.sweep(&told, now + 300 * MILLI).is_some());
        calls.end(&thread, route(call % 3), 400 * MILLI);
        assert_eq!(detector.sweep(&told, now + 500 * MILLI), None);
        assert!(calls.is_idle());
    }
    assert_eq!(told.take(), []);
}

/// The thread ends the call that is examined and begins another one.
#[test]
fn a_slot_that_is_reused_while_its_thread_is_examined_is_not_reported() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    let thread = slot(1);
    let reuse = |_: u32| {
        calls.end(&thread, route(7), FLOOR);
        assert!(calls.begin(&thread, route(8), start));
        (Wait::Computing, Vec::new())
    };
    assert!(calls.begin(&thread, route(7), start));
    Detector::new(&calls, &reuse, start).sweep(&told, start + FLOOR);
    assert_eq!(told.take(), []);
    Detector::new(&calls, &look, start).sweep(&told, start + FLOOR);
    assert_eq!(told.take(), [began(8)]);
}

#[test]
fn a_call_that_has_lost_its_loop_is_reported_too() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    let mut detector = Detector::new(&calls, &look, start);
    let of = |turn| Turn { event_loop: 1, turn };
    let caught = |number| Caught { thread: 5, route: route(number), since: start };
    calls.lost(of(3), caught(7));
    calls.lost(of(5), caught(8));
    calls.returned(of(5), start + 900 * MILLI);
    detector.sweep(&told, start + FLOOR);
    assert_eq!(told.take(), [began(7)]);
    assert!(calls.is_idle());
    calls.returned(of(3), start + 2 * FLOOR);
    detector.sweep(&told, start + 2 * FLOOR);
    assert_eq!(told.take(), [ended(7, 2 * FLOOR)]);
    assert!(calls.lost.lock().is_empty());
}

/// The thread that takes a loop enters the call after the call has returned.
#[test]
fn a_call_that_returns_before_it_is_entered_leaves_no_entry() {
    let calls = Calls::new(Some(FLOOR));
    let of = Turn { event_loop: 1, turn: 3 };
    calls.returned(of, calls.born + MILLI);
    calls.lost(of, Caught { thread: 5, route: route(7), since: calls.born });
    assert!(calls.lost.lock().is_empty());
    assert!(calls.is_idle());
}

#[test]
fn late_calls_of_one_route_are_one_report() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    let mut detector = Detector::new(&calls, &look, start);
    let threads: Vec<_> = (1..=10).map(slot).collect();
    for (index, thread) in threads.iter().enumerate() {
        let number = if index == 9 { 8 } else { 7 };
        assert!(calls.begin(thread, route(number), start));
    }
    detector.sweep(&told, start + FLOOR);
    let alike: Vec<_> = told.0.lock().iter().map(|stuck| stuck.alike).collect();
    let mut routes = told.take();
    routes.sort();
    assert_eq!(routes, [began(7), began(8)]);
    assert_eq!(alike.iter().sum::<usize>(), 8);
    for thread in &threads[..9] {
        calls.end(thread, route(7), 2 * FLOOR);
    }
    detector.sweep(&told, start + 2 * FLOOR);
    assert_eq!(told.take(), [ended(7, 2 * FLOOR)]);
}

#[test]
fn reports_are_limited_and_those_left_out_are_counted() {
    let (calls, told) = (Calls::new(Some(FLOOR)), Told::default());
    let start = calls.born;
    let mut detector = Detector::new(&calls, &look, start);
    let threads: Vec<_> = (1..=40).map(slot).collect();
    for (number, thread) in (1..=40).zip(&threads) {
        assert!(calls.begin(thread, route(number), start));
    }
    detector.sweep(&told, start + FLOOR);
    assert_eq!(told.take().len(), 16);
    let thread = slot(41);
    assert!(calls.begin(&thread, route(41), start + FLOOR));
    detector.sweep(&told, start + 3 * FLOOR);
    assert_eq!(told.last().unreported, 24);
    assert_eq!(told.take(), [began(41)]);
}

/// A pool starts threads and ends them for as long as the server runs.
#[test]
fn threads_that_have_ended_are_forgotten() {
    let calls = Calls::new(Some(FLOOR));
    for thread in 0..10_000 {
        calls.register(&slot(thread));
    }
    assert!(calls.threads.lock().len() < 100);
}

#[test]
fn a_report_is_one_line_for_people() {
    let stuck = Stuck {
        number: 3,
        route: Some("GET /orders/{id}".to_owned()),
        request_id: Some("4f1c".to_owned()),
        trace_id: Some("4bf9".to_owned()),
        running: Duration::from_millis(3120),
        longest: Duration::from_millis(850),
        is_one_of_the_first: false,
        has_ended: false,
        wait: Some(Wait::Socket { doing: "reads from", peer: Some("10.0.0.5:5432".to_owned()) }),
        thread: Some("filoplume-4".to_owned()),
        frames: vec!["recv".to_owned(), "shop::orders".to_owned()],
        alike: 2,
        unreported: 1,
    };
    let expected = "GET /orders/{id}: stuck (#3): it has been running for 3.1 s, longer than ever \
                    (850 ms), and its thread reads from a socket with 10.0.0.5:5432; request 4f1c; \
                    trace 4bf9; thread filoplume-4; 2 more of its calls are late; 1 late calls \
                    before were not reported; possibly in shop::orders > recv";
    assert_eq!(stuck.to_string(), expected);
    for (is_one_of_the_first, expected) in [
        (true, "for 3.1 s, one of the first calls of its route, and its thread"),
        (false, "for 3.1 s, longer than ever, and its thread"),
    ] {
        let stuck = Stuck { longest: Duration::ZERO, is_one_of_the_first, ..stuck.clone() };
        assert!(stuck.to_string().contains(expected), "{stuck}");
    }
    let ended = Stuck { has_ended: true, wait: None, frames: Vec::new(), alike: 0, ..stuck };
    let ended = Stuck { running: Duration::from_secs(312), unreported: 0, ..ended };
    let expected =
        "GET /orders/{id}: no longer stuck (#3): it took 312 s; request 4f1c; trace 4bf9";
    assert_eq!(ended.to_string(), expected);
}
