//! Tests of the task pool's public interface under load.

#![allow(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{PoolMetrics, TaskPool};

/// Generous, because a test machine may be busy.
const LONG: Duration = Duration::from_secs(60);

#[track_caller]
fn wait_until(pool: &TaskPool, condition: impl Fn(PoolMetrics) -> bool) {
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

/// Occupies a thread of the pool until the sender is dropped.
fn hold(pool: &TaskPool) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    pool.execute(move || _ = released.recv()).unwrap();
    release
}

#[test]
fn every_task_of_many_threads_runs_once() {
    const SUBMITTERS: usize = 4;
    const TASKS: usize = 25_000;
    let pool = TaskPool::builder().threads_max(8).queue_capacity(64).build();
    let runs: Arc<Vec<AtomicUsize>> =
        Arc::new((0..SUBMITTERS * TASKS).map(|_| AtomicUsize::new(0)).collect());
    thread::scope(|scope| {
        for submitter in 0..SUBMITTERS {
            let (pool, runs) = (&pool, &runs);
            scope.spawn(move || {
                for task in 0..TASKS {
                    let number = submitter * TASKS + task;
                    submit_until_taken(pool, runs, number);
                }
            });
        }
    });
    assert!(pool.shutdown(LONG));
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    let metrics = pool.metrics();
    assert_eq!(metrics.tasks_started, (SUBMITTERS * TASKS) as u64);
    assert!(metrics.threads_peak <= 8, "{metrics:?}");
    assert_eq!(metrics.threads_started, metrics.threads_retired);
    assert_eq!((metrics.threads, metrics.queued), (0, 0));
}

fn submit_until_taken(pool: &TaskPool, runs: &Arc<Vec<AtomicUsize>>, number: usize) {
    loop {
        let runs = Arc::clone(runs);
        let outcome = pool.execute(move || _ = runs[number].fetch_add(1, Ordering::Relaxed));
        match outcome {
            Ok(()) => return,
            Err(error) => assert!(error.is_full(), "{error}"),
        }
        thread::yield_now();
    }
}

#[test]
fn threads_come_and_go_while_tasks_keep_coming() {
    // No idle time at all: whenever a worker goes idle, its retirement races against the next task.
    let pool =
        TaskPool::builder().threads_max(4).threads_min(1).idle_timeout(Duration::ZERO).build();
    let (sender, receiver) = mpsc::channel();
    for number in 0..5_000 {
        let sender = sender.clone();
        pool.execute(move || sender.send(number).unwrap()).unwrap();
        assert_eq!(receiver.recv_timeout(LONG), Ok(number));
    }
    wait_until(&pool, |metrics| metrics.threads == 1);
    assert!(pool.shutdown(LONG));
}

#[test]
fn an_idle_pool_shrinks_to_its_minimum_and_grows_again() {
    let pool = TaskPool::builder()
        .threads_min(2)
        .threads_max(6)
        .idle_timeout(Duration::from_millis(20))
        .build();
    for _ in 0..2 {
        let held: Vec<_> = (0..6).map(|_| hold(&pool)).collect();
        assert_eq!(pool.metrics().threads, 6);
        drop(held);
        wait_until(&pool, |metrics| (metrics.threads, metrics.idle) == (2, 2));
    }
    assert!(pool.shutdown(LONG));
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.threads_started, metrics.threads_retired), (0, 10, 10));
}

#[test]
fn a_pool_without_minimum_ends_all_its_threads() {
    let pool = TaskPool::builder().idle_timeout(Duration::from_millis(1)).build();
    assert_eq!(pool.metrics().threads, 0, "no thread before there is a task");
    drop(hold(&pool));
    wait_until(&pool, |metrics| metrics.threads == 0);
    assert_eq!(pool.metrics().threads_retired, 1);
}

#[test]
fn a_panic_of_a_task_ends_neither_its_thread_nor_other_tasks() {
    let pool = TaskPool::builder().threads_max(1).build();
    let (sender, receiver) = mpsc::channel();
    for number in 0..100 {
        let sender = sender.clone();
        pool.execute(move || {
            sender.send(thread::current().id()).unwrap();
            assert!(number % 2 == 0, "an odd task");
        })
        .unwrap();
    }
    drop(sender);
    let threads: Vec<_> = receiver.iter().collect();
    assert_eq!(threads.len(), 100);
    assert!(threads.iter().all(|thread| *thread == threads[0]), "the same thread runs all tasks");
    assert!(pool.shutdown(LONG));
    assert_eq!((pool.metrics().panics, pool.metrics().threads_started), (50, 1));
}

#[test]
fn a_thread_survives_a_panic_payload_that_panics_when_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let pool = TaskPool::builder().threads_max(1).build();
    pool.execute(|| std::panic::panic_any(Bomb)).unwrap();
    drop(hold(&pool));
    assert!(pool.shutdown(LONG));
    assert_eq!((pool.metrics().panics, pool.metrics().threads_started), (1, 1));
}

#[test]
fn each_task_beyond_the_capacity_is_refused_once() {
    let pool = TaskPool::builder().threads_max(2).queue_capacity(3).build();
    let held = [hold(&pool), hold(&pool)];
    let outcomes: Vec<_> = (0..10).map(|_| pool.execute(|| ())).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
    assert!(
        outcomes.iter().flat_map(|outcome| outcome.as_ref().err()).all(|error| error.is_full())
    );
    assert_eq!((pool.metrics().refused, pool.metrics().queued), (7, 3));
    drop(held);
    assert!(pool.shutdown(LONG));
    assert_eq!(pool.metrics().tasks_started, 5);
}

#[test]
fn a_task_submits_further_tasks() {
    let pool = TaskPool::builder().threads_max(2).build();
    let (sender, receiver) = mpsc::channel();
    descend(&pool, 100, sender);
    receiver.recv_timeout(LONG).unwrap();
    assert!(pool.shutdown(LONG));
    assert_eq!(pool.metrics().tasks_started, 101);
}

fn descend(pool: &TaskPool, depth: usize, done: mpsc::Sender<()>) {
    let next = pool.clone();
    let task = move || match depth {
        0 => done.send(()).unwrap(),
        _ => descend(&next, depth - 1, done),
    };
    pool.execute(task).unwrap();
}

#[test]
fn the_oldest_task_in_the_queue_runs_first() {
    let pool = TaskPool::builder().threads_max(1).build();
    let held = hold(&pool);
    let (sender, receiver) = mpsc::channel();
    for number in 0..20 {
        let sender = sender.clone();
        pool.execute(move || sender.send(number).unwrap()).unwrap();
    }
    drop((held, sender));
    assert!(receiver.iter().eq(0..20));
}

#[test]
fn the_thread_that_was_idle_last_works_first() {
    let pool = TaskPool::builder().threads_max(2).build();
    let held = [hold(&pool), hold(&pool)];
    let [first, second] = held;
    drop(first);
    wait_until(&pool, |metrics| metrics.idle == 1);
    drop(second);
    wait_until(&pool, |metrics| metrics.idle == 2);
    let mut names = Vec::new();
    for _ in 0..10 {
        names.push(name_of_worker(&pool));
        wait_until(&pool, |metrics| metrics.idle == 2);
    }
    assert!(names.iter().all(|name| name == "task-pool-2"), "{names:?}");
}

fn name_of_worker(pool: &TaskPool) -> String {
    let (sender, receiver) = mpsc::channel();
    pool.execute(move || sender.send(thread::current().name().unwrap().to_owned()).unwrap())
        .unwrap();
    receiver.recv_timeout(LONG).unwrap()
}

#[test]
fn threads_are_named_and_no_name_prevents_their_start() {
    let pool =
        TaskPool::builder().thread_name("quill\0s").threads_max(1).stack_size(256 * 1024).build();
    assert_eq!(name_of_worker(&pool), "quills-1");
}

#[test]
fn a_wake_up_left_behind_by_a_task_is_harmless() {
    let pool = TaskPool::builder().threads_max(1).build();
    for _ in 0..100 {
        pool.execute(|| thread::current().unpark()).unwrap();
    }
    wait_until(&pool, |metrics| metrics.idle == 1);
    assert_eq!(name_of_worker(&pool), "task-pool-1");
    assert!(pool.shutdown(LONG));
    assert_eq!(pool.metrics().tasks_started, 101);
}

#[test]
fn shutdown_runs_queued_tasks_and_refuses_new_ones() {
    let pool = TaskPool::builder().threads_max(1).threads_min(1).build();
    let held = hold(&pool);
    pool.execute(|| ()).unwrap();
    assert!(!pool.shutdown(Duration::ZERO), "a task is running");
    let error = pool.execute(|| ()).unwrap_err();
    assert!(error.is_closed() && !error.is_full());
    assert_eq!(error.to_string(), "the pool is shut down");
    drop(held);
    assert!(pool.shutdown(Duration::MAX));
    assert_eq!(pool.metrics().tasks_started, 2);
}
