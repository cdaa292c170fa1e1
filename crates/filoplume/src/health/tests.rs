//! Tests of checks: when they run, what a probe finds, and that no probe waits for a check that
//! hangs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::checks::{Check, Checks, Purpose, State};
use super::report::Verdict;
use crate::core::error::{Error, Result};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

/// The deadline of a check that is meant to be late.
const SHORT: Duration = Duration::from_millis(20);

fn check(
    name: &str,
    deadline: Duration,
    run: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Check {
    Check { name: name.to_owned(), deadline, purpose: Purpose::Ready, run: Box::new(run) }
}

fn checks(cache_for: Duration, checks: Vec<Check>) -> Arc<Checks> {
    Arc::new(Checks::new(checks, cache_for))
}

fn states(checks: &Arc<Checks>) -> Vec<State> {
    checks.probe(|_| true).iter().map(|finding| finding.state).collect()
}

fn verdict(checks: &Arc<Checks>) -> Verdict {
    Verdict::of(&checks.probe(|_| true), Verdict::Ready)
}

/// A check that counts its runs, and in each waits until the sender is dropped.
fn hanging(deadline: Duration) -> (Check, Sender<()>, Arc<AtomicUsize>) {
    let (sender, receiver): (_, Receiver<()>) = channel();
    let (receiver, runs) = (Mutex::new(receiver), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&runs);
    let run = move || {
        count.fetch_add(1, Ordering::SeqCst);
        let receiver = receiver.lock().expect("no check panics");
        match receiver.recv_timeout(LONG) {
            Err(RecvTimeoutError::Timeout) => Err(Error::internal("the test hangs")),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    };
    (check("hanging", deadline, run), sender, runs)
}

#[test]
fn an_instance_is_starting_until_each_check_has_passed_and_failing_afterwards() {
    let (first_state, second_state) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let passes_if_set = |value: &Arc<AtomicUsize>| {
        let value = Arc::clone(value);
        move || match value.load(Ordering::SeqCst) {
            0 => Err(Error::unavailable("not yet")),
            _ => Ok(()),
        }
    };
    let first = check("first", LONG, passes_if_set(&first_state));
    let second = check("second", LONG, passes_if_set(&second_state));
    let checks = checks(Duration::ZERO, vec![first, second]);
    assert_eq!(verdict(&checks), Verdict::Starting);
    first_state.store(1, Ordering::SeqCst);
    assert_eq!(states(&checks), [State::Passed, State::Failed]);
    assert_eq!(verdict(&checks), Verdict::Starting);
    second_state.store(1, Ordering::SeqCst);
    assert_eq!(verdict(&checks), Verdict::Ready);
    first_state.store(0, Ordering::SeqCst);
    assert_eq!(verdict(&checks), Verdict::Failing);
    first_state.store(1, Ordering::SeqCst);
    assert_eq!(verdict(&checks), Verdict::Ready);
}

#[test]
fn a_check_that_hangs_is_late_and_runs_once_until_it_ends() {
    let (hanging, release, runs) = hanging(SHORT);
    let checks = checks(Duration::ZERO, vec![hanging, check("quick", LONG, || Ok(()))]);
    assert_eq!(states(&checks), [State::Late, State::Passed]);
    for _ in 0..50 {
        // Later probes do not wait for the deadline again.
        assert_eq!(states(&checks), [State::Late, State::Passed]);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    drop(release);
    // Later runs end at once, but not always in time on a busy machine.
    let end = Instant::now() + LONG;
    while verdict(&checks) != Verdict::Ready {
        assert!(Instant::now() < end, "{:?}", states(&checks));
        thread::yield_now();
    }
}

#[test]
fn a_run_that_ends_after_its_deadline_has_not_passed() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let late = check("late", Duration::ZERO, move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    // Its result is kept for longer than the test lasts.
    let checks = checks(LONG, vec![late]);
    for _ in 0..10 {
        assert_eq!(states(&checks), [State::Late]);
    }
    while checks.is_running() {
        thread::yield_now();
    }
    assert_eq!(states(&checks), [State::Late], "when it has ended as well");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(verdict(&checks), Verdict::Starting);
}

#[test]
fn many_probes_cost_one_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let counted = check("counted", LONG, move || {
        count.fetch_add(1, Ordering::SeqCst);
        Err(Error::unavailable("no"))
    });
    let checks = checks(LONG, vec![counted]);
    let probes: Vec<_> = (0..4)
        .map(|_| {
            let checks = Arc::clone(&checks);
            thread::spawn(move || {
                (0..25).for_each(|_| assert_eq!(states(&checks), [State::Failed]));
            })
        })
        .collect();
    probes.into_iter().for_each(|probe| probe.join().expect("it finds a failed check"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn checks_run_at_the_same_time() {
    let barrier = Arc::new(Barrier::new(3));
    let meeting = |name| {
        let barrier = Arc::clone(&barrier);
        check(name, LONG, move || {
            barrier.wait();
            Ok(())
        })
    };
    let checks = checks(LONG, vec![meeting("a"), meeting("b"), meeting("c")]);
    assert_eq!(states(&checks), [State::Passed; 3]);
}

#[test]
fn few_probes_wait_and_the_others_get_the_latest_results() {
    let (hanging, release, runs) = hanging(LONG);
    let checks = checks(LONG, vec![hanging]);
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let checks = Arc::clone(&checks);
            thread::spawn(move || states(&checks))
        })
        .collect();
    // With fewer than four waiting probes, the next one would wait as well, and never return.
    while checks.waiting() < 4 {
        thread::yield_now();
    }
    assert_eq!(states(&checks), [State::Unknown]);
    assert_eq!(verdict(&checks), Verdict::Starting);
    drop(release);
    for probe in waiting {
        assert_eq!(probe.join().expect("it waits"), [State::Passed]);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(states(&checks), [State::Passed]);
}

#[test]
fn a_check_that_panics_has_failed_and_runs_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let checks = checks(
        Duration::ZERO,
        vec![check("panics", LONG, move || {
            assert!(count.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
            Ok(())
        })],
    );
    assert_eq!(states(&checks), [State::Failed]);
    assert_eq!(states(&checks), [State::Passed]);
}

#[test]
fn a_probe_runs_only_the_checks_that_it_asks_for() {
    let (mut live, _sender, runs) = hanging(SHORT);
    live.purpose = Purpose::Live;
    let checks = checks(LONG, vec![live, check("ready", LONG, || Ok(()))]);
    let findings = checks.probe(|purpose| purpose == Purpose::Ready);
    assert_eq!(findings.iter().map(|finding| finding.name).collect::<Vec<_>>(), ["ready"]);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn checks_for_show_do_not_decide() {
    let mut shown = check("shown", LONG, || Err(Error::unavailable("no")));
    shown.purpose = Purpose::Shown;
    let checks = checks(LONG, vec![shown]);
    assert_eq!(states(&checks), [State::Failed]);
    assert_eq!(verdict(&checks), Verdict::Ready);
}

#[test]
fn deadlines_that_no_instant_can_represent_are_shortened() {
    let checks = checks(Duration::MAX, vec![check("endless", Duration::MAX, || Ok(()))]);
    assert_eq!(states(&checks), [State::Passed]);
}

#[test]
fn a_deadline_of_any_length_can_be_waited_for() {
    assert_eq!(states(&checks(LONG, vec![check("a", Duration::MAX, || Ok(()))])), [State::Passed]);
}

#[test]
fn one_of_several_failing_checks_that_has_passed_before_tells_failing_from_starting() {
    for passing in 0..3 {
        let has_passed = Arc::new(Mutex::new(false));
        let result = |index: usize| {
            let has_passed = Arc::clone(&has_passed);
            move || {
                let has_passed = *has_passed.lock().unwrap();
                if index == passing && !has_passed { Ok(()) } else { Err(Error::unavailable("no")) }
            }
        };
        let all = (0..3).map(|index| check(&index.to_string(), LONG, result(index))).collect();
        let checks = checks(Duration::ZERO, all);
        assert_eq!(verdict(&checks), Verdict::Starting, "the others have never passed");
        *has_passed.lock().unwrap() = true;
        assert_eq!(verdict(&checks), Verdict::Failing, "{passing}");
    }
}
