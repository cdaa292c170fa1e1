//! Turns of threads that compute, and of those that wait.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

use super::*;
use crate::budget::clients::Clients;

const PATIENCE: Duration = Duration::from_secs(30);

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

fn member(thread: u32) -> Member {
    Member { thread, client: None }
}

fn client(address: &str) -> Option<ClientId> {
    let clients = Arc::new(Clients::new(100));
    clients.admit(address.parse().unwrap()).unwrap().map(|connection| connection.client())
}

fn all_compute(_: u32) -> Option<bool> {
    Some(true)
}

/// Runs this many threads that each send ten pieces. Returns how many were at work at the same
/// time, at most.
fn at_work_at_once(turns: &Arc<Turns>, threads: u32) -> usize {
    let (at_work, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 1..=threads {
            scope.spawn(move || {
                let mut turn = Turn::of(turns, member(thread));
                for _ in 0..10 {
                    let now = at_work.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    thread::sleep(Duration::from_micros(500));
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    turn.pass_on();
                }
            });
        }
    });
    most.load(Ordering::SeqCst)
}

#[test]
fn a_few_threads_that_compute_have_a_turn_at_a_time() {
    let turns = Turns::new(3, all_compute);
    assert_eq!(at_work_at_once(&turns, 20), 3);
    let line = turns.line.lock();
    assert!(line.having.is_empty() && line.waiting.is_empty());
}

#[test]
fn threads_that_wait_for_something_else_are_in_nobodys_way() {
    let waits: fn(u32) -> Option<bool> = |_| Some(false);
    for (is_at_work, have_numbers) in [(waits, true), (|_| None, true), (|_| None, false)] {
        let turns = Turns::new(2, is_at_work);
        let (gate, inside) = (&AtomicBool::new(false), &AtomicUsize::new(0));
        thread::scope(|scope| {
            for thread in 1..=20 {
                let turns = &turns;
                let thread = if have_numbers { thread } else { NO_NUMBER };
                scope.spawn(move || {
                    let mut turn = Turn::of(turns, member(thread));
                    inside.fetch_add(1, Ordering::SeqCst);
                    eventually("the gate opens", || gate.load(Ordering::SeqCst));
                    turn.pass_on();
                });
            }
            eventually("all have begun", || inside.load(Ordering::SeqCst) == 20);
            gate.store(true, Ordering::SeqCst);
        });
        assert!(turns.line.lock().having.is_empty());
    }
}

#[test]
fn a_turn_is_passed_on_in_order_and_given_back_while_the_client_is_slow() {
    let turns = Turns::new(1, all_compute);
    let mut first = Turn::of(&turns, member(1));
    let order = &Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 2..=3 {
            let waiting_before = thread as usize - 2;
            eventually("the one before waits", || {
                turns.line.lock().waiting.len() == waiting_before
            });
            let turns = &turns;
            scope.spawn(move || {
                let _turn = Turn::of(turns, member(thread));
                order.lock().push(thread);
            });
        }
        eventually("both wait", || turns.line.lock().waiting.len() == 2);
        // As if its turn had just begun, and nobody waited for long, on every machine.
        let soon = Instant::now() + 100 * PATIENCE;
        (first.since, turns.line.lock().called_at) = (soon, soon);
        first.pass_on();
        assert!(order.lock().is_empty(), "it is too early");
        first.suspend(|| eventually("both had their turn", || order.lock().len() == 2));
        assert!(first.since < soon, "its next turn has its own time");
    });
    assert_eq!(*order.lock(), [2, 3]);
    assert_eq!(turns.line.lock().having, [member(1)]);
}

/// One client computes for long, and does not pass its turns on.
#[test]
fn a_client_without_a_turn_does_not_wait_for_those_that_compute_for_long() {
    let (greedy, other) = (client("192.0.2.1"), client("192.0.2.2"));
    assert!(greedy.is_some() && greedy != other);
    let turns = Turns::new(2, all_compute);
    let (gate, inside) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 1..=20 {
            let turns = &turns;
            scope.spawn(move || {
                let _turn = Turn::of(turns, Member { thread, client: greedy });
                inside.fetch_add(1, Ordering::SeqCst);
                eventually("the gate opens", || gate.load(Ordering::SeqCst));
            });
        }
        eventually("they wait", || turns.line.lock().waiting.len() == 18);
        drop(Turn::of(&turns, Member { thread: 21, client: other }));
        assert_eq!(inside.load(Ordering::SeqCst), 2, "the greedy one has what it had");
        gate.store(true, Ordering::SeqCst);
    });
    assert_eq!(inside.load(Ordering::SeqCst), 20);
}

/// If nobody has waited until now, nobody was passed over, however long ago the last call was.
#[test]
fn the_time_until_a_turn_is_overdue_begins_with_the_wait() {
    let client = client("192.0.2.1");
    let turns = Turns::new(1, all_compute);
    let first = Turn::of(&turns, Member { thread: 1, client });
    let begun = Instant::now();
    thread::scope(|scope| {
        // It is of the same client, so it gets no turn because it is overdue.
        let second = scope.spawn(|| drop(Turn::of(&turns, Member { thread: 2, client })));
        eventually("it waits", || turns.line.lock().waiting.len() == 1);
        assert!(turns.line.lock().called_at >= begun);
        let called_after = Instant::now();
        drop(first);
        second.join().unwrap();
        assert!(turns.line.lock().called_at >= called_after, "and begins again with each turn");
    });
}

#[test]
fn clients_that_are_not_counted_do_not_wait_for_each_other_either() {
    let turns = Turns::new(1, all_compute);
    let first = Turn::of(&turns, member(1));
    let had_turn = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(Turn::of(&turns, member(2)));
            had_turn.store(true, Ordering::SeqCst);
        });
        eventually("the other had its turn", || had_turn.load(Ordering::SeqCst));
        drop(first);
    });
}

#[test]
fn each_of_many_threads_is_looked_at_except_the_one_that_looks() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let turns = Turns::new(1, |thread| {
        SEEN.fetch_or(1 << thread, Ordering::SeqCst);
        Some(true)
    });
    turns.line.lock().having = (1..64).map(member).collect();
    for _ in 0..64 {
        drop(turns.look(turns.line.lock(), 1));
    }
    assert_eq!(SEEN.load(Ordering::SeqCst), u64::MAX << 2);
}

/// A thread that waits lets many others have a turn. When it computes, some have to stand in line
/// again, although nobody waits yet.
#[test]
fn a_turn_too_many_ends_when_it_is_over() {
    let turns = Turns::new(1, all_compute);
    let mut first = Turn::of(&turns, member(1));
    {
        let mut line = turns.line.lock();
        line.having.push(member(2));
        line.looked_at = Instant::now() + 100 * PATIENCE;
    }
    first.since = Instant::now().checked_sub(TURN).unwrap();
    thread::scope(|scope| {
        let passed = scope.spawn(move || first.pass_on());
        eventually("it waits or goes on", || {
            passed.is_finished() || turns.line.lock().waiting.len() == 1
        });
        assert!(!passed.is_finished());
        assert_eq!(turns.line.lock().having, [member(2)]);
        turns.line.lock().end(member(2));
    });
}

/// A parser that takes memory mostly waits for the system, and so do all others that take some.
#[test]
fn code_that_never_waits_computes_whatever_the_system_says() {
    let (turns, others) = (Turns::of_computing(), Turns::of_this_machine());
    assert_eq!((turns.is_at_work)(NO_NUMBER), Some(true));
    assert_eq!(turns.ready_max * PER_PROCESSOR, others.ready_max);
}

/// People do not notice the first two, and a thread that computes for longer is in others' way.
#[test]
fn a_turn_is_a_few_milliseconds_and_overdue_after_a_tenth_of_a_second() {
    let ms = Duration::from_millis;
    assert!(TURN <= LOOK_AFTER && LOOK_AFTER <= ms(10));
    assert!(LOOK_AFTER < LOOK_AGAIN_AFTER && LOOK_AGAIN_AFTER < OVERDUE);
    assert!(OVERDUE <= ms(100));
}

#[test]
fn turns_follow_how_many_of_the_threads_are_ready() {
    for (having, ready, expected) in [
        // Nothing is known.
        (3, None, 16),
        (20, None, 40),
        // Too many are ready: as many have a turn as would be ready just often enough.
        (16, Some(16), 8),
        (16, Some(9), 14),
        (4, Some(9), 8),
        // Just enough, and not so few that it grows faster.
        (16, Some(8), 16),
        (16, Some(5), 19),
        // Few.
        (16, Some(4), 16 + 4 + 4),
        (16, Some(0), 16 + 8 + 4),
        (0, Some(0), 8),
    ] {
        assert_eq!(having_max(having, ready, 8), expected, "{having}, {ready:?}");
    }
}
