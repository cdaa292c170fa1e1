//! Tests of the measurements, with the clocks of this machine.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::Cell;
use std::thread;

use super::*;

thread_local! {
    /// Simulates a system without a thread clock.
    pub(super) static HAS_NO_CLOCK: Cell<bool> = const { Cell::new(false) };
}

fn measure(code: impl FnOnce()) -> CallTimes {
    let clocks = Clocks::default().with_run_queue();
    let probe = clocks.begin(Sample::Close);
    code();
    clocks.end(&probe)
}

fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {}
}

#[test]
#[cfg(unix)]
fn waiting_is_measured() {
    let took = measure(|| thread::sleep(Duration::from_millis(20)));
    assert!(took.waited.unwrap() >= Duration::from_millis(15), "{took:?}");
    assert!(took.waited.unwrap() <= took.wall, "{took:?}");
}

#[test]
#[cfg(unix)]
fn a_call_that_was_no_sample_is_known_to_have_waited() {
    let mut clocks = Clocks::default().with_run_queue();
    let before = on_processor().unwrap();
    while on_processor().unwrap() < before + Duration::from_millis(20) {}
    assert!(clocks.ran_at_most().unwrap() >= Duration::from_millis(20));
    clocks.begin_look(Sample::Close, None);
    clocks.end_look();
    thread::sleep(Duration::from_millis(50));
    assert!(clocks.ran_at_most().unwrap() < Duration::from_millis(20));
    let before = on_processor().unwrap();
    compute(Duration::from_millis(20));
    let computed = on_processor().unwrap() - before;
    assert!(clocks.ran_at_most().unwrap() >= computed);
    assert_eq!(clocks.without_run_queue().ran_at_most(), None);
}

/// Test machines are busy. A thread without a processor must not count as waiting.
///
/// A virtual machine may be stopped for some milliseconds without any accounting, which looks
/// like a wait. Some samples of some rounds are affected. If the time without a processor
/// counted, most samples of every round would be.
#[test]
#[cfg(target_os = "linux")]
fn computing_and_waiting_for_a_processor_do_not_count_as_waiting() {
    let round = || {
        let computing: Vec<_> = (0..8)
            .map(|_| thread::spawn(|| measure(|| compute(Duration::from_millis(50)))))
            .collect();
        let mut all: Vec<CallTimes> =
            computing.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(all.iter().all(|took| took.wall >= Duration::from_millis(50)), "{all:?}");
        all.sort_by_key(|took| took.waited);
        all
    };
    let mut last = Vec::new();
    let is_right = (0..10).any(|_| {
        last = round();
        last[last.len() / 2].waited.unwrap() < Duration::from_millis(10)
    });
    assert!(is_right, "{last:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_leader_knows_how_long_it_stood_in_line() {
    let leader = || {
        let mut clocks = Clocks::default().with_run_queue();
        let begun = Instant::now();
        assert_eq!(clocks.in_line(begun), None, "nothing to compare with");
        compute(Duration::from_millis(50));
        assert_eq!(clocks.in_line(begun + Duration::from_micros(999)), None, "too soon");
        let (in_line, elapsed) = clocks.in_line(Instant::now()).unwrap();
        assert!(elapsed >= Duration::from_millis(50) && in_line <= elapsed);
        assert_eq!(clocks.without_run_queue().in_line(Instant::now()), None);
        in_line
    };
    let processors = thread::available_parallelism().unwrap().get();
    let leaders: Vec<_> = (0..4 * processors).map(|_| thread::spawn(leader)).collect();
    let in_line: Duration = leaders.into_iter().map(|thread| thread.join().unwrap()).sum();
    // Each one of four that share a processor for 50 ms stands in line for some 35.
    assert!(in_line >= Duration::from_millis(50), "{in_line:?}");
    let mut no_leader = Clocks::default();
    assert_eq!(no_leader.in_line(Instant::now()), None);
    assert_eq!(no_leader.in_line(Instant::now() + Duration::from_secs(1)), None);
}

#[test]
#[cfg(target_os = "linux")]
fn the_time_in_line_is_told_once_per_millisecond() {
    let mut clocks = Clocks::default().with_run_queue();
    let now = Instant::now();
    assert_eq!(clocks.in_line(now), None);
    assert!(clocks.in_line(now + IN_LINE_MIN).is_some());
    assert_eq!(clocks.in_line(now + IN_LINE_MIN), None);
}

#[test]
#[cfg(unix)]
fn a_look_at_a_call_is_taken_once() {
    let mut clocks = Clocks::default().with_run_queue();
    let others = Others { are_ready: true, per_second: 7 };
    let sample = LoopSample { others, stands_for: 16 };
    clocks.begin_look(Sample::Close, Some(sample));
    thread::sleep(Duration::from_millis(2));
    clocks.end_look();
    let (started, took, seen) = clocks.take_look().unwrap();
    assert!(took.wall >= Duration::from_millis(2) && started.elapsed() >= took.wall);
    assert!(took.waited.is_some());
    assert_eq!(seen, Some(sample));
    assert!(clocks.take_look().is_none());
    clocks.begin_look(Sample::Brief, None);
    assert!(clocks.take_look().is_none(), "the call has not returned");
}

#[test]
fn a_thread_that_no_longer_leads_keeps_its_slot() {
    let mut clocks = Clocks::default().with_run_queue();
    let slot = Arc::clone(clocks.slot());
    assert!(Arc::ptr_eq(clocks.without_run_queue().slot(), &slot));
}

#[test]
fn a_brief_sample_has_the_wall_time_only() {
    let clocks = Clocks::default();
    let probe = clocks.begin(Sample::Brief);
    compute(Duration::from_millis(1));
    let took = clocks.end(&probe);
    assert!(took.wall >= Duration::from_millis(1));
    assert_eq!(took.waited, None);
}

/// If clients alternate between routes, a regular pattern would always measure one of them and
/// never the others.
#[test]
fn the_measured_calls_follow_no_pattern_of_clients() {
    for routes in [2_usize, 3, 4, 5, 8, 16, 32] {
        let mut clocks = Clocks::default();
        let mut samples = vec![0_usize; routes];
        for call in 0..routes * 16_000 {
            samples[call % routes] += usize::from(clocks.next_pool_sample().is_some());
        }
        // One in 16 of 16,000 calls of each route: 1000.
        assert!(samples.iter().all(|samples| (700..1300).contains(samples)), "{samples:?}");
    }
}

#[test]
fn between_two_measured_calls_are_thirty_others_at_most() {
    let mut clocks = Clocks::default();
    let (mut pause, mut seen) = (0, [0_usize; 31]);
    for _ in 0..1_000_000 {
        if clocks.next_pool_sample().is_some() {
            seen[pause] += 1;
            pause = 0;
        } else {
            pause += 1;
        }
    }
    assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
}

/// A pool of new threads has many first calls, which must not count for sixteen each.
#[test]
fn every_call_of_a_thread_counts_for_one_on_average() {
    const THREADS: usize = 8000;
    let mut counted = [0_u32; 40];
    for _ in 0..THREADS {
        let mut clocks = Clocks::default();
        for counted in &mut counted {
            *counted += clocks.next_pool_sample().unwrap_or(0);
        }
    }
    assert_eq!(counted[0] as usize, THREADS, "the first call is certain to be measured");
    // Each of the others is a sample in 500 of 8000 threads, give or take 22.
    assert!(counted.iter().all(|counted| (5600..10_400).contains(counted)), "{counted:?}");
}

#[test]
fn a_system_without_thread_clocks_reports_unknown_times() {
    HAS_NO_CLOCK.set(true);
    assert_eq!(measure(|| {}).waited, None);
    let clocks = Clocks::default();
    let probe = clocks.begin_on_pool(true);
    assert_eq!(clocks.end_on_pool(&probe).waited, None);
    HAS_NO_CLOCK.set(false);
}

#[test]
#[cfg(unix)]
fn a_call_on_the_pool_waits_while_it_does_not_run() {
    let clocks = Clocks::default();
    let probe = clocks.begin_on_pool(true);
    let before = on_processor().unwrap();
    while on_processor().unwrap() < before + Duration::from_millis(5) {}
    thread::sleep(Duration::from_millis(10));
    let took = clocks.end_on_pool(&probe);
    let (ran, waited) = (took.ran.unwrap(), took.waited.unwrap());
    assert!(ran >= Duration::from_millis(5) && waited >= Duration::from_millis(10), "{took:?}");
    assert_eq!(ran + waited, took.wall);
}

#[test]
#[cfg(target_os = "linux")]
fn a_waiting_thread_is_distinguished_from_a_running_one() {
    use std::sync::mpsc;

    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let waiting = thread::Builder::new().name("R) brackets (".to_owned()).spawn(move || {
        tell.send(thread_number()).unwrap();
        let _ = ended.recv();
    });
    let number = told.recv().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_at_work(number) == Some(true) && Instant::now() < deadline {
        thread::yield_now();
    }
    assert_eq!(is_at_work(number), Some(false));
    assert_eq!(is_at_work(thread_number()), Some(true));
    drop(end);
    waiting.unwrap().join().unwrap();
    assert_eq!(is_at_work(0), None);
}

#[test]
#[cfg(target_os = "linux")]
fn the_run_queue_delay_is_the_second_number() {
    assert_eq!(second_number(b"773636845 645209 4\n"), Some(645_209));
    for text in
        [&b""[..], b"7", b"7 ", b"7 x 4", b"7 1", b"7  1", b"\xff 1", b"7 99999999999999999999 1"]
    {
        assert_eq!(second_number(text), None);
    }
}
