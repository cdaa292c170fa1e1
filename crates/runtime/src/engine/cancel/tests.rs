//! Tests of the threads that run the callbacks of cancelled requests.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::config::ServerConfig;
use crate::engine::Backend;
use crate::engine::pull_queue::PullQueue;
use crate::service::cancel::Cancel;
use crate::service::stopping::Stopping;

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn engine() -> Arc<Engine> {
    let backend = Backend::Program(Arc::new(PullQueue::new(1, DEADLINE)));
    Engine::new(ServerConfig::default(), backend, Stopping::new())
}

/// Cancels a request whose callback tells its number, and then waits until the result is dropped.
fn cancel(engine: &Arc<Engine>, number: usize, told: &Sender<usize>) -> Sender<()> {
    let (latch, (ends, end), told) = (Arc::new(Latch::new()), mpsc::channel(), told.clone());
    let callback = move || {
        told.send(number).unwrap();
        let _: Result<(), _> = end.recv();
    };
    Cancel::new(Arc::clone(&latch)).on_cancel(callback).keep();
    engine.cancel(latch);
    ends
}

fn next(told: &Receiver<usize>) -> usize {
    told.recv_timeout(DEADLINE).unwrap()
}

fn eventually(happens: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !happens() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

#[test]
fn a_few_callbacks_run_at_a_time_and_the_others_in_their_order() {
    let (engine, (tell, told)) = (engine(), mpsc::channel());
    let mut running: Vec<_> =
        (0..RUNNERS_MAX).map(|number| cancel(&engine, number, &tell)).collect();
    let mut first: Vec<usize> = running.iter().map(|_| next(&told)).collect();
    first.sort_unstable();
    assert!(first.iter().copied().eq(0..RUNNERS_MAX));
    let waiting = [100, 200].map(|number| cancel(&engine, number, &tell));
    assert_eq!(engine.cancels.state.lock().runners, RUNNERS_MAX);
    assert!(told.try_recv().is_err(), "no thread is left");
    drop(running.pop());
    assert_eq!(next(&told), 100);
    drop((running, waiting));
    assert_eq!(next(&told), 200);
    eventually(|| engine.cancels.state.lock().runners == 0);
    assert_eq!(engine.counters.cancelled.get(), 4 + 2);
    drop(cancel(&engine, 300, &tell));
    assert_eq!(next(&told), 300, "later ones are run too");
}

#[test]
fn a_request_whose_handler_has_returned_is_not_cancelled() {
    let (engine, latch) = (engine(), Arc::new(Latch::new()));
    latch.seal();
    engine.cancel(latch);
    assert_eq!(engine.counters.cancelled.get(), 0);
    let latch = Arc::new(Latch::new());
    engine.cancel(Arc::clone(&latch));
    assert!(latch.is_set());
    assert_eq!(engine.counters.cancelled.get(), 1);
    assert_eq!(engine.cancels.state.lock().runners, 0, "there is nothing to run");
}

#[test]
fn a_callback_that_panics_is_counted() {
    let (engine, latch) = (engine(), Arc::new(Latch::new()));
    Cancel::new(Arc::clone(&latch)).on_cancel(|| panic!("a test")).keep();
    engine.cancel(latch);
    eventually(|| engine.counters.panics.get() == 1);
}

/// The pool of a server that has ended takes no tasks. A runner that does not begin must not count,
/// or a few of these would be the last ones.
#[test]
fn a_runner_that_gets_no_thread_does_not_count() {
    let (engine, (tell, _told)) = (engine(), mpsc::channel());
    engine.pool.close();
    let waiting: Vec<_> =
        (0..2 * RUNNERS_MAX).map(|number| cancel(&engine, number, &tell)).collect();
    let state = engine.cancels.state.lock();
    assert_eq!((state.runners, state.waiting.len()), (0, waiting.len()));
}
