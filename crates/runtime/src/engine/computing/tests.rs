//! Tests of what the engine learns from calls that compute. The engine has no loops that run, and
//! the calls are entries of threads that wait or are at work for as long as a test needs them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Weak;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use super::*;
use crate::budget::seats::Entered;
use crate::budget::turns::{Turn, Turns};
use crate::config::ServerConfig;
use crate::engine::Backend;
use crate::engine::event_loop::EventLoop;
use crate::engine::exchange::{AnswerTo, Asker, Call};
use crate::engine::pull_queue::PullQueue;
use crate::engine::work::Work;
use crate::execution::key::Route;
use crate::execution::stuck::slot::ThreadSlot;
use crate::service::Site;
use crate::service::body::Body;
use crate::service::mailbox::WakeConnection;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::stopping::Stopping;
use crate::service::tcp::Calls;
use crate::transport::Peer;

const KEY: ExecutionKey = ExecutionKey::at(1);
const OTHER: ExecutionKey = ExecutionKey::at(2);

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long a call was held that does not cost its route the loops by itself.
const HELD: Duration = Duration::from_micros(500);

fn engine() -> Arc<Engine> {
    let backend = Backend::Program(Arc::new(PullQueue::new(1, DEADLINE)));
    Engine::new(ServerConfig::default(), backend, Stopping::new())
}

fn times(ran: Duration) -> CallTimes {
    CallTimes { wall: ran, waited: Some(Duration::ZERO), ran: Some(ran) }
}

/// More ready threads than this keep the processors busy.
fn busy_from() -> usize {
    2 * thread::available_parallelism().map_or(1, usize::from)
}

/// A thread that runs a call and waits, until it is dropped.
struct Waiting {
    thread: u32,
    ends: Option<Sender<()>>,
    joins: Option<JoinHandle<()>>,
}

impl Waiting {
    fn start(engine: &Arc<Engine>, key: ExecutionKey, since: Instant, has_turn: bool) -> Self {
        let (engine, (ends, end), (tell, told)) =
            (Arc::clone(engine), mpsc::channel(), mpsc::channel());
        let joins = thread::spawn(move || {
            let _turn = has_turn.then(|| Turn::wait(Turns::of_computing(), None));
            let slot = ThreadSlot::of_this_thread(probe::thread_number);
            assert!(engine.calls.begin(&slot, Route::learned(key).id(), since));
            tell.send(probe::thread_number()).unwrap();
            let _: Result<(), _> = end.recv();
        });
        let waiting = Self { thread: told.recv().unwrap(), ends: Some(ends), joins: Some(joins) };
        eventually(|| probe::is_at_work(waiting.thread) == Some(false));
        waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.ends.take());
        self.joins.take().unwrap().join().unwrap();
    }
}

fn eventually(mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !happens() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

/// A call of the thread of the test, which is at work whenever somebody looks at it.
struct OwnCall<'a>(&'a Engine, Arc<ThreadSlot>, ExecutionKey);

impl<'a> OwnCall<'a> {
    fn begin(engine: &'a Engine, key: ExecutionKey, since: Instant) -> Self {
        let slot = ThreadSlot::of_this_thread(probe::thread_number);
        assert!(engine.calls.begin(&slot, Route::learned(key).id(), since));
        Self(engine, slot, key)
    }
}

impl Drop for OwnCall<'_> {
    fn drop(&mut self) {
        self.0.calls.end(&self.1, Route::learned(self.2).id(), Duration::ZERO);
    }
}

#[test]
fn a_first_call_that_computes_begins_its_route_with_few_threads() {
    let engine = engine();
    engine.note_ran(KEY, times(Duration::from_micros(10)));
    let waited = CallTimes { waited: Some(HELD * 20), ..times(HELD) };
    engine.note_ran(OTHER, waited);
    assert_eq!(engine.seats.computing(), None);
    engine.note_ran(ExecutionKey::at(3), times(HELD));
    assert_eq!(engine.seats.computing(), Some(vec![ExecutionKey::at(3)]));
}

#[test]
fn a_route_computes_if_its_first_call_is_caught_at_work() {
    let engine = engine();
    engine.caught(KEY, &mut OnLoop::default(), probe::thread_number(), HELD);
    assert_eq!(engine.counters.routes_learned.get(), 0, "it stays on the loops");
    assert_eq!(engine.routes.ready(KEY), Share::ALL);
    assert_eq!(engine.seats.computing(), Some(vec![KEY]));
}

#[test]
fn a_route_whose_first_call_is_caught_while_it_waits_does_not_compute() {
    let engine = engine();
    let call = Waiting::start(&engine, KEY, Instant::now(), false);
    engine.caught(KEY, &mut OnLoop::default(), call.thread, HELD);
    assert_eq!((engine.routes.ready(KEY), engine.seats.computing()), (Share::default(), None));
}

#[test]
fn a_known_route_computes_if_it_leaves_the_loops_by_a_call_at_work() {
    let (engine, mut on_loop) = (engine(), OnLoop::default());
    engine.note_ran(KEY, times(Duration::from_micros(10)));
    engine.caught(KEY, &mut on_loop, probe::thread_number(), HELD);
    assert_eq!(engine.counters.routes_learned.get(), 0);
    assert_eq!((engine.routes.ready(KEY), engine.seats.computing()), (Share::default(), None));
    let mut caught = 0..100;
    while engine.counters.routes_learned.get() == 0 && caught.next().is_some() {
        engine.caught(KEY, &mut on_loop, probe::thread_number(), HELD);
    }
    assert_eq!(engine.counters.routes_learned.get(), 1);
    assert_eq!(engine.routes.ready(KEY), Share::ALL);
    assert_eq!(engine.seats.computing(), Some(vec![KEY]));
}

/// Looks at the calls of the engine. Returns whether those of [`KEY`] were seen at work.
fn sees_key_at_work(engine: &Arc<Engine>) -> bool {
    // Without a route that computes, nobody looks.
    engine.seats.presume_computing(OTHER);
    engine.routes.set_ready(KEY, Share::default());
    engine.look_at_calls(&mut Looks::default());
    engine.routes.ready(KEY) != Share::default()
}

#[test]
fn a_call_is_looked_at_if_its_route_computes_or_it_is_old() {
    let (quick, computes) = (Duration::from_micros(10), HELD);
    for (ran, at_once) in [(Some(computes), true), (Some(quick), false), (None, false)] {
        let begun = Instant::now();
        let engine = engine();
        if let Some(ran) = ran {
            engine.note_ran(KEY, times(ran));
        }
        // As if it would begin in an hour, so that it is young on any machine.
        let young = OwnCall::begin(&engine, KEY, begun + DEADLINE * 60);
        assert_eq!(sees_key_at_work(&engine), at_once, "{ran:?}");
        drop(young);
        let _old = OwnCall::begin(&engine, KEY, begun);
        eventually(|| sees_key_at_work(&engine));
        let age_min = match ran {
            Some(ran) if ran == quick => OLD,
            Some(_) => Duration::ZERO,
            None => OLD_IF_UNKNOWN,
        };
        assert!(begun.elapsed() >= age_min, "{ran:?}");
    }
}

#[test]
fn a_thread_with_a_turn_counts_as_one_at_work_even_if_it_waits() {
    for has_turn in [false, true] {
        let engine = engine();
        engine.note_ran(KEY, times(HELD));
        let _call = Waiting::start(&engine, KEY, Instant::now(), has_turn);
        assert_eq!(sees_key_at_work(&engine), has_turn);
    }
}

#[test]
fn a_route_without_calls_computes_if_its_calls_did_mostly_and_for_long() {
    for (ran, share, is_kept) in [
        (Some(HELD), Share::ALL, true),
        (None, Share::ALL, true),
        (Some(Duration::from_micros(10)), Share::ALL, false),
        (Some(HELD), Share::default(), false),
    ] {
        let engine = engine();
        if let Some(ran) = ran {
            engine.note_ran(KEY, times(ran));
        }
        engine.routes.set_ready(KEY, share);
        engine.seats.presume_computing(KEY);
        assert!(!engine.look_at_calls(&mut Looks::default()), "no request waits");
        assert_eq!(engine.seats.computing(), is_kept.then(|| vec![KEY]), "{ran:?} {share:?}");
    }
}

#[test]
fn threads_that_wait_do_not_keep_the_processors_busy() {
    let engine = engine();
    engine.note_ran(KEY, times(HELD));
    engine.routes.set_ready(KEY, Share::default());
    let calls = (0..=busy_from()).map(|_| Waiting::start(&engine, KEY, Instant::now(), false));
    let _calls: Vec<_> = calls.collect();
    engine.look_at_calls(&mut Looks::default());
    assert_eq!(engine.seats.computing(), None);
}

/// Stands for the loop of a connection that needs no wake-up.
struct NoLoop;

impl WakeConnection for NoLoop {
    fn wake_connection(&self, _: usize) {}
}

/// Returns a request of [`KEY`] whose handler tells that it was called.
fn request(event_loop: &EventLoop, called: Sender<()>) -> Work {
    let service = move |_: Request| {
        called.send(()).unwrap();
        Response::new(204)
    };
    let site = Arc::new(Site::new(service));
    let request = http::Request::get("/").body(Body::default()).unwrap().try_into().unwrap();
    let mut calls = Calls::new(Weak::<NoLoop>::new(), 0);
    calls.ask(1, request, Arc::clone(&site));
    let ask = calls.next_asked().unwrap();
    let loop_handle = Arc::clone(event_loop.handle());
    let (account, route) = (loop_handle.engine.account(None), Route::learned(KEY));
    let asker = Asker { loop_handle, peer: Peer::Unix, account, site, route, slot: ask.slot };
    Work::Call(Box::new(Call::new(ask.request, AnswerTo::Guest(asker))))
}

/// Lets a request wait for processor time, which threads of its route seem to use up.
fn wait_for_processor(engine: &Arc<Engine>, event_loop: &EventLoop) -> mpsc::Receiver<()> {
    let (called, is_called) = mpsc::channel();
    engine.seats.presume_computing(KEY);
    for _ in 0..4 * busy_from() {
        engine.seats.force(KEY, None);
    }
    assert!(matches!(engine.seats.enter(KEY, request(event_loop, called)), Entered::Waiting));
    assert!(engine.seats.are_limited());
    is_called
}

#[test]
fn a_request_that_waits_for_processor_time_is_called_when_threads_are_seen_to_wait() {
    let engine = engine();
    let event_loop = EventLoop::new(&engine).unwrap();
    let is_called = wait_for_processor(&engine, &event_loop);
    engine.look_at_calls(&mut Looks::default());
    is_called.recv_timeout(DEADLINE).unwrap();
}

#[test]
fn the_next_look_must_come_while_a_request_waits_for_processor_time() {
    let engine = engine();
    let event_loop = EventLoop::new(&engine).unwrap();
    let _called = wait_for_processor(&engine, &event_loop);
    // No thread can start the request.
    engine.pool.close();
    assert!(engine.look_at_calls(&mut Looks::default()));
}
