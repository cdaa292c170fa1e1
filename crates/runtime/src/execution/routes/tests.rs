//! Tests of the samples on the pool and of the stored state of routes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::*;

const KEY: u32 = 7;

/// A call that was measured with the wall clock only.
fn timed(micros: u64) -> CallTimes {
    CallTimes { wall: Duration::from_micros(micros), waited: None, ran: None }
}

/// A closely sampled call.
fn sampled(waited: u64, ran: u64) -> CallTimes {
    let (waited, ran) = (Duration::from_micros(waited), Duration::from_micros(ran));
    CallTimes { wall: waited + ran, waited: Some(waited), ran: Some(ran) }
}

/// Returns a route that has left the loops because a call ran for too long.
fn on_the_pool() -> (Routes, ExecutionKey) {
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    assert!(routes.stuck(key, Duration::from_millis(5)).is_some());
    assert!(routes.stuck(key, Duration::from_millis(5)).is_none(), "the route has left");
    (routes, key)
}

/// Returns after how many of these calls the route returns, up to a hundred.
fn returns_after(routes: &Routes, key: ExecutionKey, took: CallTimes) -> Option<usize> {
    (1..=100).find(|_| routes.ran_on_pool(key, took))
}

fn no_others() -> Others {
    Others::default()
}

#[test]
fn quick_calls_bring_a_route_back() {
    let (routes, key) = on_the_pool();
    assert!(routes.may_block(Route::learned(key)));
    assert_eq!(returns_after(&routes, key, timed(14)), Some(64));
    assert!(!routes.may_block(Route::learned(key)));
}

#[test]
fn medium_calls_are_ignored_while_it_is_unknown_whether_they_wait() {
    let (routes, key) = on_the_pool();
    for _ in 0..63 {
        assert!(!routes.ran_on_pool(key, timed(14)));
        // These calls may have waited or computed.
        assert!(!routes.ran_on_pool(key, timed(900)));
    }
    assert!(routes.ran_on_pool(key, timed(14)));
}

#[test]
fn medium_calls_count_once_a_sample_has_shown_a_wait() {
    let (routes, key) = on_the_pool();
    assert!(!routes.record_on_pool(key, sampled(900, 1)));
    for _ in 0..100 {
        assert!(!routes.ran_on_pool(key, timed(14)));
        assert!(!routes.ran_on_pool(key, timed(900)));
    }
    // Until a sampled call computes all the time.
    assert!(!routes.record_on_pool(key, sampled(0, 900)));
    for _ in 0..60 {
        routes.ran_on_pool(key, timed(14));
        assert!(!routes.ran_on_pool(key, timed(900)));
    }
    assert!(returns_after(&routes, key, timed(14)).is_some_and(|calls| calls <= 4));
}

/// What decision 17 says of systems without thread clocks.
#[test]
fn without_thread_clocks_only_catches_and_long_calls_teach() {
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    let mut on_loop = OnLoop::default();
    let busy = Others { are_ready: true, per_second: 10_000 };
    let sample = |on_loop: &mut OnLoop, took| routes.record_on_loop(key, on_loop, took, busy);
    // These calls may have waited, computed or been preempted.
    for _ in 0..1000 {
        assert_eq!(sample(&mut on_loop, timed(900)), None);
    }
    assert!(!routes.may_block(Route::learned(key)));
    let caught = |on_loop: &mut OnLoop| routes.caught(key, on_loop, Duration::from_millis(5));
    assert!((0..3).any(|_| caught(&mut on_loop).is_some()), "the watchdog still teaches");
    assert!(routes.may_block(Route::learned(key)));
    // On the pool, calls of more than a millisecond show that the route should stay there, as soon
    // as one of them was a sample.
    assert!(!routes.record_on_pool(key, timed(5000)));
    for _ in 0..1000 {
        assert!(!routes.ran_on_pool(key, timed(14)));
        assert!(!routes.ran_on_pool(key, timed(5000)));
    }
    assert!((1..1 << 17).any(|_| routes.ran_on_pool(key, timed(14))), "quick calls bring it back");
}

#[test]
fn slow_calls_are_ignored_until_one_was_quick() {
    let (routes, key) = on_the_pool();
    routes.record_on_pool(key, sampled(900, 1));
    let entry = &routes.entries[key.index()];
    let held = || entry.known.lock().policy.clone();
    let before = format!("{:?}", held());
    assert_eq!(returns_after(&routes, key, timed(900)), None);
    assert_eq!(format!("{:?}", held()), before, "none of the calls took the lock");
    assert!(!routes.ran_on_pool(key, timed(14)));
    assert!(entry.is_counting.load(Ordering::Relaxed));
    routes.ran_on_pool(key, timed(900));
    assert!(!entry.is_counting.load(Ordering::Relaxed));
}

#[test]
fn a_sample_counts_for_all_calls_that_it_stands_for() {
    let (routes, key) = on_the_pool();
    struct Named;
    impl RouteSource for Named {
        fn route(&self) -> Option<u32> {
            Some(KEY)
        }
        fn path(&self) -> &str {
            "/"
        }
    }
    routes.name(key, &Named);
    routes.count_on_pool(key, 16, sampled(300, 20));
    routes.count_on_loop(key, 1, sampled(0, 7));
    let [metrics] = &routes.read(&|number| Some(format!("number {number}")))[..] else {
        panic!("one route")
    };
    assert_eq!((&*metrics.name, metrics.number, metrics.calls), ("number 7", Some(7), 17));
    assert_eq!(metrics.waiting, Duration::from_micros(16 * 300));
    assert_eq!(metrics.computing, Duration::from_micros(16 * 20 + 7));
    assert_eq!((metrics.runs, metrics.why), (Runs::OnPool, Why::Caught));
}

#[test]
fn a_new_route_runs_on_its_loop_and_is_named_by_its_first_call() {
    struct Path(String);
    impl RouteSource for Path {
        fn route(&self) -> Option<u32> {
            None
        }
        fn path(&self) -> &str {
            &self.0
        }
    }
    let (routes, key) = (Routes::new(), ExecutionKey::of_path("/a"));
    assert!(routes.is_new(key) && routes.name_of(key, &|_| None).is_none());
    let long = Path(format!("/{}", "a".repeat(100)));
    assert!(routes.runs_here(Route::learned(key), Some(&long), no_others));
    assert!(!routes.is_new(key));
    assert!(routes.runs_here(Route::learned(key), Some(&Path("/b".to_owned())), no_others));
    routes.name(key, &Path("/b".to_owned()));
    assert_eq!(routes.name_of(key, &|_| None), Some(format!("/{}", "a".repeat(63))));
    assert_eq!(routes.read(&|_| None).len(), 1);
}

#[test]
fn a_call_runs_where_its_route_says_or_where_it_was_measured_to_be_cheapest() {
    let (routes, key) = on_the_pool();
    let busy = || Others { are_ready: true, per_second: 0 };
    let with = |execution| Route { execution, ..Route::learned(key) };
    assert!(routes.runs_here(with(Execution::Inline), None, busy));
    assert!(!routes.runs_here(with(Execution::Dispatched), None, no_others));
    // After a catch the route runs on no loop, however idle the loop is.
    assert!(!routes.runs_here(with(Execution::Learned), None, no_others));
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    routes.leave(key, Duration::from_micros(100), Why::Waited(Duration::from_micros(100)));
    let per_second = |per_second| move || Others { are_ready: false, per_second };
    let runs_here = |others: Others| routes.runs_here(Route::learned(key), None, || others);
    assert!(runs_here(no_others()) && runs_here(per_second(1024)()));
    assert!(!runs_here(per_second(1025)()) && !runs_here(busy()));
}

#[test]
fn a_loop_that_loses_too_much_makes_the_route_leave_with_a_reason() {
    for (took, why) in [
        (sampled(2900, 10), Why::Waited(Duration::from_micros(2900))),
        (sampled(0, 2900), Why::Computed(Duration::from_micros(2900))),
    ] {
        let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
        let mut on_loop = OnLoop::default();
        let busy = Others { are_ready: true, per_second: 0 };
        on_loop.begin();
        on_loop.next_sample();
        assert_eq!(routes.record_on_loop(key, &mut on_loop, took, busy), Some(Place::Pool));
        assert_eq!(routes.entries[key.index()].known.lock().why, why);
        // The call ran because the loop was idle. It delayed no request and changes nothing.
        on_loop.begin();
        on_loop.next_sample();
        assert_eq!(routes.record_on_loop(key, &mut on_loop, took, busy), None);
    }
}

#[test]
fn quick_samples_on_an_idle_loop_bring_a_route_back() {
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    assert!(
        routes
            .leave(key, Duration::from_micros(100), Why::Waited(Duration::from_micros(100)))
            .is_some()
    );
    let mut on_loop = OnLoop::default();
    let mut after_sample = |_| {
        on_loop.begin();
        routes.count_on_loop(key, on_loop.next_stands_for().into(), sampled(0, 5));
        on_loop.next_sample();
        routes.record_on_loop(key, &mut on_loop, sampled(0, 5), no_others())
    };
    assert_eq!((after_sample(()), after_sample(())), (None, None));
    assert_eq!(routes.calls_on_loops(key), 2);
    assert_eq!((3..=64).filter_map(|_| after_sample(())).collect::<Vec<_>>(), [Place::Loop]);
}

#[test]
fn a_route_leaves_at_its_second_catch_or_at_once_if_it_was_on_the_pool() {
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    let mut on_loop = OnLoop::default();
    let held = Duration::from_micros(600);
    assert!(routes.caught(key, &mut on_loop, held).is_none());
    assert!(routes.caught(key, &mut on_loop, held).is_some());
    // The route does not run on idle loops any more.
    assert!(!routes.runs_here(Route::learned(key), None, no_others));
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    routes.leave(key, Duration::from_micros(100), Why::Waited(Duration::from_micros(100)));
    assert!(routes.runs_here(Route::learned(key), None, no_others));
    assert!(
        routes.caught(key, &mut OnLoop::default(), held).is_none(),
        "the route has already left"
    );
    assert!(!routes.runs_here(Route::learned(key), None, no_others));
}

#[test]
fn the_price_is_an_average_of_twice_the_cost_to_the_loop_within_bounds() {
    let routes = Routes::new();
    assert_eq!(routes.price(), Duration::from_micros(10));
    for (took, expected) in [(9, 11_000), (1000, 14_625), (0, 13_421)] {
        routes.note_dispatch(Duration::from_micros(took));
        assert_eq!(routes.price(), Duration::from_nanos(expected));
    }
}
