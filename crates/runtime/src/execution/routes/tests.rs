//! What calls on the pool teach, and what is remembered of a route.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::*;

const KEY: u32 = 7;

/// A call that was only timed.
fn timed(micros: u64) -> Took {
    Took { wall: Duration::from_micros(micros), waited: None, ran: None }
}

/// A call of which all is known.
fn looked_at(waited: u64, ran: u64) -> Took {
    let (waited, ran) = (Duration::from_micros(waited), Duration::from_micros(ran));
    Took { wall: waited + ran, waited: Some(waited), ran: Some(ran) }
}

/// A route that a call has had leave the loops.
fn on_the_pool() -> (Routes, ExecutionKey) {
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    assert!(routes.stuck(key, Duration::from_millis(5)));
    assert!(!routes.stuck(key, Duration::from_millis(5)), "it has left");
    (routes, key)
}

/// How many of these calls bring it back, if a hundred do.
fn returns_after(routes: &Routes, key: ExecutionKey, took: Took) -> Option<usize> {
    (1..=100).find(|_| routes.ran_on_pool(key, took))
}

fn nobody() -> Others {
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
fn calls_in_the_middle_band_tell_nothing_while_nobody_knows_whether_they_wait() {
    let (routes, key) = on_the_pool();
    for _ in 0..63 {
        assert!(!routes.ran_on_pool(key, timed(14)));
        // They may have waited, and they may have computed.
        assert!(!routes.ran_on_pool(key, timed(900)));
    }
    assert!(routes.ran_on_pool(key, timed(14)));
}

#[test]
fn calls_in_the_middle_band_count_once_one_of_them_was_seen_to_wait() {
    let (routes, key) = on_the_pool();
    assert!(!routes.looked_on_pool(key, looked_at(900, 1), 16));
    for _ in 0..100 {
        assert!(!routes.ran_on_pool(key, timed(14)));
        assert!(!routes.ran_on_pool(key, timed(900)));
    }
    // Until one is seen that computes all the while.
    assert!(!routes.looked_on_pool(key, looked_at(0, 900), 16));
    for _ in 0..60 {
        routes.ran_on_pool(key, timed(14));
        assert!(!routes.ran_on_pool(key, timed(900)));
    }
    assert!(returns_after(&routes, key, timed(14)).is_some_and(|calls| calls <= 4));
}

#[test]
fn slow_calls_are_passed_over_while_none_was_quick() {
    let (routes, key) = on_the_pool();
    routes.looked_on_pool(key, looked_at(900, 1), 16);
    let entry = &routes.entries[key.index()];
    let held = || entry.known.lock().policy.clone();
    let before = format!("{:?}", held());
    assert_eq!(returns_after(&routes, key, timed(900)), None);
    assert_eq!(format!("{:?}", held()), before, "not one of them took the lock to say so");
    assert!(!routes.ran_on_pool(key, timed(14)));
    assert!(entry.is_counting.load(Ordering::Relaxed));
    routes.ran_on_pool(key, timed(900));
    assert!(!entry.is_counting.load(Ordering::Relaxed));
}

#[test]
fn a_look_on_the_pool_counts_for_the_calls_that_it_stands_for() {
    let (routes, key) = on_the_pool();
    struct Named;
    impl Called for Named {
        fn route(&self) -> Option<u32> {
            Some(KEY)
        }
        fn path(&self) -> &str {
            "/"
        }
    }
    routes.name(key, &Named);
    routes.looked_on_pool(key, looked_at(300, 20), 16);
    let mut on_loop = OnLoop::default();
    assert!(on_loop.begin());
    on_loop.look();
    routes.looked_on_loop(key, &mut on_loop, looked_at(0, 7), nobody());
    let [metrics] = &routes.read(&|number| Some(format!("number {number}")))[..] else {
        panic!("one route")
    };
    assert_eq!((&*metrics.name, metrics.calls), ("number 7", 17));
    assert_eq!(metrics.waiting, Duration::from_micros(16 * 300));
    assert_eq!(metrics.computing, Duration::from_micros(16 * 20 + 7));
    assert_eq!((metrics.runs, metrics.why), (Runs::OnPool, Why::Caught));
}

#[test]
fn a_new_route_runs_on_its_loop_and_is_named_by_its_first_call() {
    struct Path(String);
    impl Called for Path {
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
    assert!(routes.runs_here(Route::learned(key), Some(&long), nobody));
    assert!(!routes.is_new(key));
    assert!(routes.runs_here(Route::learned(key), Some(&Path("/b".to_owned())), nobody));
    routes.name(key, &Path("/b".to_owned()));
    assert_eq!(routes.name_of(key, &|_| None), Some(format!("/{}", "a".repeat(63))));
    assert_eq!(routes.read(&|_| None).len(), 1);
}

#[test]
fn where_a_call_runs_is_what_its_route_says_or_what_was_learned() {
    let (routes, key) = on_the_pool();
    let busy = || Others { are_ready: true, per_second: 0 };
    let with = |execution| Route { execution, ..Route::learned(key) };
    assert!(routes.runs_here(with(Execution::Inline), None, busy));
    assert!(!routes.runs_here(with(Execution::Dispatched), None, nobody));
    // What was caught runs on no loop, however idle that is.
    assert!(!routes.runs_here(with(Execution::Learned), None, nobody));
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    routes.leave(key, Duration::from_micros(100), Why::Waited(Duration::from_micros(100)));
    let per_second = |per_second| move || Others { are_ready: false, per_second };
    let runs_here = |others: Others| routes.runs_here(Route::learned(key), None, || others);
    assert!(runs_here(nobody()) && runs_here(per_second(1024)()));
    assert!(!runs_here(per_second(1025)()) && !runs_here(busy()));
}

#[test]
fn a_loop_that_loses_too_much_has_the_route_leave_and_says_why() {
    for (took, why) in [
        (looked_at(2900, 10), Why::Waited(Duration::from_micros(2900))),
        (looked_at(0, 2900), Why::Computed(Duration::from_micros(2900))),
    ] {
        let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
        let mut on_loop = OnLoop::default();
        let busy = Others { are_ready: true, per_second: 0 };
        on_loop.begin();
        on_loop.look();
        assert_eq!(routes.looked_on_loop(key, &mut on_loop, took, busy), Some(Place::Pool));
        assert_eq!(routes.entries[key.index()].known.lock().why, why);
        // It ran because the loop was idle. It did not hold up anybody, and moves nothing.
        on_loop.begin();
        on_loop.look();
        assert_eq!(routes.looked_on_loop(key, &mut on_loop, took, busy), None);
    }
}

#[test]
fn a_call_that_is_caught_has_its_route_leave_at_the_second_time_or_at_once_if_it_is_known() {
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    let mut on_loop = OnLoop::default();
    let held = Duration::from_micros(600);
    assert!(!routes.caught(key, &mut on_loop, held));
    assert!(routes.caught(key, &mut on_loop, held));
    // It runs on idle loops no more.
    assert!(!routes.runs_here(Route::learned(key), None, nobody));
    let (routes, key) = (Routes::new(), ExecutionKey::numbered(KEY));
    routes.leave(key, Duration::from_micros(100), Why::Waited(Duration::from_micros(100)));
    assert!(routes.runs_here(Route::learned(key), None, nobody));
    assert!(!routes.caught(key, &mut OnLoop::default(), held), "it has left already");
    assert!(!routes.runs_here(Route::learned(key), None, nobody));
}

#[test]
fn the_price_is_twice_what_the_loop_paid_within_bounds_and_an_average() {
    let routes = Routes::new();
    assert_eq!(routes.price(), Duration::from_micros(10));
    for (took, expected) in [(9, 11_000), (1000, 14_625), (0, 13_421)] {
        routes.note_dispatch(Duration::from_micros(took));
        assert_eq!(routes.price(), Duration::from_nanos(expected));
    }
}
