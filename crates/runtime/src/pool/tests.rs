//! Tests of the parts that only the engine uses. `tests/pool.rs` tests the public interface.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::ledger::Urgency;
use super::spawn::{ThreadStart, start_thread};
use super::state::Placement;
use super::{Pool, PoolConfig, PoolMetrics, RefusedBecause};

const LONG: Duration = Duration::from_secs(30);

type Task = Box<dyn FnOnce() + Send>;

fn pool(config: PoolConfig) -> Pool<Task> {
    Pool::new(config, |task: Task| task())
}

/// A pool in which chosen starts of threads fail. The first start is number 0.
fn pool_with_failures(config: PoolConfig, fails: fn(usize) -> bool) -> Pool<Task> {
    let starts = AtomicUsize::new(0);
    let spawner = move |start: ThreadStart| {
        if fails(starts.fetch_add(1, Ordering::SeqCst)) {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        start_thread(start)
    };
    Pool::with_spawner(config, Box::new(spawner), |task: Task| task())
}

fn one_thread() -> PoolConfig {
    PoolConfig::new().threads_max(1).queue_capacity(1)
}

/// A task that keeps its thread until the returned sender is dropped.
fn holding() -> (Task, Sender<()>) {
    let (release, released): (Sender<()>, Receiver<()>) = crossbeam_channel::bounded(0);
    (Box::new(move || _ = released.recv()), release)
}

fn signalling() -> (Task, Receiver<()>) {
    let (sender, receiver) = crossbeam_channel::bounded(1);
    (Box::new(move || _ = sender.send(())), receiver)
}

#[track_caller]
fn wait_until(pool: &Pool<Task>, condition: impl Fn(PoolMetrics) -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition(pool.metrics()) {
        assert!(
            Instant::now() < deadline,
            "the condition did not become true: {:?}",
            pool.metrics()
        );
        thread::yield_now();
    }
}

#[track_caller]
fn ends(pool: &Pool<Task>) {
    pool.close();
    assert!(pool.join(Instant::now() + LONG), "{:?}", pool.metrics());
    let metrics = pool.metrics();
    assert_eq!(metrics.threads_started, metrics.threads_retired);
}

#[test]
fn an_urgent_task_uses_the_reserve_and_never_waits() {
    let pool = pool(one_thread().urgent_reserve(1));
    let (task, _hold_first) = holding();
    pool.submit(task).unwrap();
    let (task, _hold_second) = holding();
    pool.submit_urgent(task).unwrap();
    let refused = pool.submit_urgent(Box::new(|| ())).unwrap_err();
    assert!(matches!(refused.reason, RefusedBecause::Full));
    assert_eq!((pool.metrics().threads, pool.metrics().queued), (2, 0));
}

#[test]
fn a_thread_of_the_reserve_ends_after_its_task_and_takes_no_queued_one() {
    let pool = pool(one_thread().urgent_reserve(1).threads_min(1));
    let (task, hold) = holding();
    pool.submit(task).unwrap();
    let (task, urgent_done) = signalling();
    pool.submit_urgent(task).unwrap();
    let (task, queued_done) = signalling();
    pool.submit(task).unwrap();
    urgent_done.recv_timeout(LONG).unwrap();
    wait_until(&pool, |metrics| metrics.threads == 1);
    assert_eq!(pool.metrics().queued, 1);
    drop(hold);
    queued_done.recv_timeout(LONG).unwrap();
    assert!(!pool.is_short());
    ends(&pool);
}

#[test]
fn no_task_waits_if_all_threads_lead_a_loop() {
    let pool = pool(one_thread());
    let (task, _hold) = holding();
    pool.submit_urgent(task).unwrap();
    let refused = pool.submit(Box::new(|| ())).unwrap_err();
    assert!(matches!(refused.reason, RefusedBecause::Full));
    assert_eq!(pool.metrics().refused, 1);
}

#[test]
fn a_reservation_runs_its_task_on_an_idle_thread_even_after_close() {
    let pool = pool(one_thread().threads_min(1));
    pool.submit(Box::new(|| ())).unwrap();
    wait_until(&pool, |metrics| metrics.idle == 1);
    let reservation = pool.reserve().unwrap();
    assert_eq!(pool.metrics().idle, 0);
    assert!(pool.reserve().is_none(), "the only thread is reserved");
    pool.close();
    let (task, done) = signalling();
    reservation.run(task);
    done.recv_timeout(LONG).unwrap();
    ends(&pool);
    assert_eq!(pool.metrics().threads_started, 1);
}

#[test]
fn a_dropped_reservation_gives_its_thread_to_the_next_task() {
    let pool = pool(one_thread().threads_min(1).urgent_reserve(1));
    let first = pool.reserve().unwrap();
    let second = pool.reserve().unwrap();
    assert_eq!(pool.metrics().threads, 2);
    drop(second);
    wait_until(&pool, |metrics| metrics.idle == 1);
    drop(first);
    wait_until(&pool, |metrics| metrics.threads == 1);
    assert_eq!(pool.metrics().idle, 1);
    let (task, done) = signalling();
    pool.submit(task).unwrap();
    done.recv_timeout(LONG).unwrap();
    ends(&pool);
    assert_eq!(pool.metrics().threads_started, 2);
}

#[test]
fn a_reserved_thread_that_is_past_its_idle_timeout_still_gets_its_task() {
    let pool = pool(one_thread().threads_min(1).idle_timeout(Duration::ZERO));
    for _ in 0..1_000 {
        let (task, done) = signalling();
        pool.reserve().unwrap().run(task);
        done.recv_timeout(LONG).unwrap();
        wait_until(&pool, |metrics| metrics.idle == 1);
    }
    ends(&pool);
}

#[test]
fn a_task_is_returned_if_its_thread_cannot_be_started() {
    let pool = pool_with_failures(one_thread(), |start| start == 0);
    let refused = pool.submit(Box::new(|| ())).unwrap_err();
    assert!(matches!(
        &refused.reason,
        RefusedBecause::CannotSpawn(error) if error.kind() == io::ErrorKind::WouldBlock
    ));
    assert!(pool.reserve().is_some(), "the count was corrected");
    ends(&pool);
    assert_eq!((pool.metrics().spawn_failures, pool.metrics().refused), (1, 1));
}

#[test]
fn a_reservation_is_not_granted_without_a_thread() {
    let pool = pool_with_failures(one_thread(), |_| true);
    assert!(pool.reserve().is_none());
    assert_eq!(pool.metrics().threads, 0);
    ends(&pool);
}

#[test]
fn a_task_whose_thread_cannot_be_started_waits_for_a_busy_one() {
    let pool = pool_with_failures(one_thread().threads_max(2), |start| start == 1);
    let (task, hold) = holding();
    pool.submit(task).unwrap();
    let (task, done) = signalling();
    pool.submit(task).unwrap();
    assert!(pool.is_short());
    let refused =
        pool_with_failures(one_thread(), |_| true).submit_urgent(Box::new(|| ())).unwrap_err();
    assert!(matches!(refused.reason, RefusedBecause::CannotSpawn(_)));
    drop(hold);
    done.recv_timeout(LONG).unwrap();
    ends(&pool);
}

/// Loom explores the interleavings. Here the failing start is delayed until a task waits for the
/// thread.
#[test]
fn a_task_that_waits_for_a_thread_that_cannot_be_started_is_rescued() {
    let (starting, is_starting) = crossbeam_channel::bounded(1);
    let (fail, may_fail) = crossbeam_channel::bounded::<()>(0);
    let starts = AtomicUsize::new(0);
    let spawner = move |start: ThreadStart| {
        if starts.fetch_add(1, Ordering::SeqCst) > 0 {
            return start_thread(start);
        }
        starting.send(()).unwrap();
        _ = may_fail.recv();
        Err(io::Error::from(io::ErrorKind::WouldBlock))
    };
    let pool = Pool::with_spawner(one_thread(), Box::new(spawner), |task: Task| task());
    let elsewhere = {
        let pool = pool.clone();
        thread::spawn(move || pool.submit(Box::new(|| ())).is_err())
    };
    is_starting.recv_timeout(LONG).unwrap();
    let (task, done) = signalling();
    pool.submit(task).unwrap();
    assert_eq!(pool.metrics().queued, 1);
    drop(fail);
    done.recv_timeout(LONG).unwrap();
    // Its own task was queued or returned, because there was room for one task only.
    assert!(elsewhere.join().unwrap());
    ends(&pool);
}

#[test]
fn the_last_handle_closes_the_pool_and_queued_tasks_still_run() {
    let pool = pool(one_thread().threads_min(1));
    let (task, hold) = holding();
    pool.submit(task).unwrap();
    let (task, done) = signalling();
    pool.submit(task).unwrap();
    let run_is_dropped = Arc::downgrade(&pool.shared);
    drop(pool);
    drop(hold);
    done.recv_timeout(LONG).unwrap();
    let deadline = Instant::now() + LONG;
    while run_is_dropped.strong_count() > 0 {
        assert!(Instant::now() < deadline, "a worker outlives its pool");
        thread::yield_now();
    }
}

#[test]
fn join_gives_up_at_its_deadline() {
    let pool = pool(one_thread());
    let (task, hold) = holding();
    pool.submit(task).unwrap();
    pool.close();
    assert!(!pool.join(Instant::now()));
    drop(hold);
    ends(&pool);
}

#[test]
fn the_time_until_a_task_is_overdue_is_told() {
    let pool = pool(PoolConfig::new().threads_max(2).queue_capacity(1).patient());
    let (held, _release) = holding();
    assert!(pool.submit(held).is_ok());
    // As if it began to wait in an hour: a task that waits already may be overdue on a machine that
    // is busy.
    let hour = Duration::from_secs(3600);
    let began = u64::try_from(hour.as_nanos()).unwrap_or_default();
    let placement = pool.shared.with_state(|state| {
        let admission = state.ledger.admit(Urgency::Ordinary, true);
        state.apply(admission, Box::new(|| ()), Urgency::Ordinary, began)
    });
    assert!(matches!(placement, Placement::Queued));
    assert!(pool.run_overdue().is_some_and(|left| (hour / 2..2 * hour).contains(&left)));
}
