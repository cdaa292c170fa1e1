//! Tests of single decisions at the values where they change. The simulator tests whole servers.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::*;

const PRICE: Duration = Duration::from_micros(10);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A closely sampled call that waited and ran for these times.
fn closely(waited: u64, ran: u64) -> CallTimes {
    let (waited, ran) = (micros(waited), micros(ran));
    CallTimes { wall: waited + ran, waited: Some(waited), ran: Some(ran) }
}

/// A briefly sampled call.
fn briefly(wall: u64) -> CallTimes {
    CallTimes { wall: micros(wall), waited: None, ran: None }
}

fn ready() -> Others {
    Others { are_ready: true, per_second: 0 }
}

#[test]
fn a_call_holds_its_thread_while_it_waits_and_while_it_computes_for_long() {
    assert_eq!(closely(500, 199).held(), Some(micros(500)));
    assert_eq!(closely(500, 200).held(), Some(micros(700)));
    assert_eq!(briefly(500).held(), None);
    // If the running time is unknown, all time without waiting counts as running.
    let took = CallTimes { ran: None, ..closely(500, 1000) };
    assert_eq!(took.held(), Some(micros(1500)));
}

#[test]
fn a_long_call_counts_as_waiting_if_it_waits_for_most_of_its_time() {
    assert_eq!(closely(14, 0).waits(), None, "the call was quick");
    assert_eq!(closely(15, 0).waits(), Some(true));
    assert_eq!(closely(50, 50).waits(), Some(false));
    assert_eq!(closely(51, 50).waits(), Some(true));
    // Without thread clocks, calls between the two bounds are unknown.
    let wall = [14, 15, 1000, 1001];
    assert_eq!(wall.map(|wall| briefly(wall).waits()), [None, None, None, Some(true)]);
}

#[test]
fn on_the_pool_a_quick_call_holds_nothing_and_a_medium_one_is_unknown() {
    let wall = [14, 15, 1000, 1001];
    assert_eq!(
        wall.map(|wall| briefly(wall).held_on_pool()),
        [Some(Duration::ZERO), None, None, Some(micros(1001))]
    );
    assert_eq!(closely(14, 0).held_on_pool(), Some(Duration::ZERO));
    assert_eq!(closely(15, 0).held_on_pool(), Some(micros(15)));
    assert_eq!(closely(15, 199).held_on_pool(), Some(micros(15)));
}

#[test]
fn others_lose_the_time_that_is_left_when_they_arrive() {
    let lose = |are_ready, per_second, held| Others { are_ready, per_second }.lose(micros(held));
    assert_eq!(lose(true, 0, 1000), 1_000_000);
    assert_eq!(lose(false, 0, 1000), 0);
    // A request arrives during one call in ten, on average after half of the time.
    assert_eq!(lose(false, 100, 1000), 50_000);
    assert_eq!(lose(false, 1000, 1000), 500_000);
    // At most the whole time, however many arrive.
    assert_eq!(lose(false, 1_000_000, 1000), 1_000_000);
}

#[test]
fn a_new_route_is_sampled_closely_sixteen_times_and_then_briefly_one_call_in_sixteen() {
    let mut route = OnLoop::default();
    let mut samples = Vec::new();
    for call in 1..=80 {
        if route.begin() {
            let sample = route.next_sample();
            samples.push((call, sample));
            let took = if sample == Sample::Close { closely(0, 5) } else { briefly(5) };
            assert!(!route.record(took, ready(), PRICE));
        }
    }
    let close = (1..=16).map(|call| (call, Sample::Close));
    let brief = [32, 48, 64, 80].map(|call| (call, Sample::Brief));
    assert_eq!(samples, close.chain(brief).collect::<Vec<_>>());
}

/// Whatever follows a sample, no call is counted twice, and none between two samples is left out.
#[test]
fn the_samples_stand_for_as_many_calls_as_there_were() {
    let mut route = OnLoop::default();
    let (mut counted, mut since) = (0, 0);
    for call in 1..=4000 {
        since += 1;
        if route.begin() {
            assert_eq!(u32::from(route.next_stands_for()), since, "call {call}");
            (counted, since) = (counted + since, 0);
            // Some wait, which makes the next ones close samples, and some are long.
            let took = match (route.next_sample(), call % 7) {
                (Sample::Close, 0) => closely(50, 5),
                (Sample::Close, _) => closely(0, 5),
                (Sample::Brief, 1 | 2) => briefly(40),
                (Sample::Brief, _) => briefly(5),
            };
            route.record(took, Others::default(), PRICE);
        }
    }
    assert_eq!(counted + since, 4000);
}

/// A route without scheduled samples, credit or debt.
fn known() -> OnLoop {
    let mut route = OnLoop::default();
    for _ in 0..FIRST_SAMPLES {
        assert_eq!((route.begin(), route.next_sample()), (true, Sample::Close));
    }
    route
}

#[test]
fn a_long_brief_sample_is_followed_by_four_close_ones() {
    for (wall, closely) in [(29, 0), (30, SAMPLES_AFTER_LONG)] {
        let mut route = known();
        assert!(!route.record(briefly(wall), ready(), PRICE));
        assert_eq!((route.close_left, route.left == 0), (closely, closely > 0), "{wall} us");
    }
}

#[test]
fn a_route_that_computes_for_long_is_always_sampled_closely() {
    let mut route = known();
    assert!(!route.record(closely(0, 199), ready(), PRICE));
    assert_eq!((route.next_sample(), route.left), (Sample::Close, 0));
    assert!(!route.record(closely(0, 29), ready(), PRICE));
    assert_eq!(route.next_sample(), Sample::Brief);
}

#[test]
fn a_call_that_waits_is_followed_by_thirty_two_close_samples() {
    for (took, follow) in [
        (closely(19, 0), 0),
        (closely(20, 0), SAMPLES_AFTER_WAIT),
        (closely(0, 199), 0),
        (closely(0, 200), SAMPLES_AFTER_WAIT),
    ] {
        let mut route = known();
        route.record(took, ready(), PRICE);
        assert_eq!(route.close_left, follow, "{took:?}");
    }
}

#[test]
fn a_route_leaves_when_others_have_lost_two_milliseconds_more_than_dispatches_cost() {
    let mut route = known();
    // Each sampled call loses 510 us and would have paid 10 us.
    let leaves: Vec<bool> = (0..5).map(|_| route.record(closely(510, 0), ready(), PRICE)).collect();
    assert_eq!(leaves, [false, false, false, true, true]);
    assert_eq!(route.balance_ns, 2_500_000);
    route.start_over();
    assert_eq!((route.balance_ns, route.is_known), (0, false));
}

#[test]
fn one_call_counts_for_three_milliseconds_at_most() {
    let mut route = known();
    assert!(route.record(closely(100_000, 0), ready(), PRICE));
    assert_eq!(route.balance_ns, 3_000_000 - 10_000);
    let mut alone = known();
    assert!(!alone.record(closely(100_000, 0), Others::default(), PRICE));
    assert_eq!(alone.balance_ns, -10_000);
}

#[test]
fn quick_calls_earn_a_credit_of_four_milliseconds_at_most() {
    let mut route = known();
    assert!(!route.record(closely(0, 5), ready(), PRICE));
    // The sample stands for sixteen calls.
    assert_eq!(route.balance_ns, -160_000);
    for _ in 0..100 {
        assert!(!route.record(closely(0, 5), ready(), PRICE));
    }
    assert_eq!(route.balance_ns, -4_000_000);
    // Two waits of 2.99 ms use that up. The third one makes the route leave.
    let leaves: Vec<bool> =
        (0..3).map(|_| route.record(closely(3000, 0), ready(), PRICE)).collect();
    assert_eq!(leaves, [false, false, true]);
    for _ in 0..100 {
        route.record(closely(3000, 0), ready(), PRICE);
    }
    assert_eq!(route.balance_ns, 8_000_000, "the debt is bounded as well");
}

#[test]
fn a_brief_sample_of_quick_calls_earns_as_much_credit() {
    let mut route = known();
    assert!(!route.record(briefly(5), ready(), PRICE));
    assert_eq!((route.balance_ns, route.left), (-160_000, 15));
}

#[test]
fn a_caught_call_counts_for_its_time_and_right_after_another_for_the_maximum() {
    let mut route = known();
    // There was no call since the last sample.
    route.left = CALLS_PER_SAMPLE - 1;
    assert!(!route.caught(micros(700), PRICE));
    assert_eq!((route.balance_ns, route.close_left, route.left), (700_000, SAMPLES_AFTER_WAIT, 0));
    assert!(route.caught(micros(700), PRICE));
    assert_eq!(route.balance_ns, 3_700_000);
    // After two calls that returned, a catch counts for its own time again.
    let mut route = known();
    route.left = CALLS_PER_SAMPLE - 1;
    route.caught(micros(700), PRICE);
    for _ in 0..2 {
        assert!(route.begin());
        assert_eq!(route.next_sample(), Sample::Close);
        route.record(closely(0, 5), ready(), PRICE);
    }
    let before = route.balance_ns;
    assert!(!route.caught(micros(700), PRICE));
    assert_eq!(route.balance_ns, before + 700_000);
}

#[test]
fn calls_since_the_last_sample_are_paid_for_when_one_is_caught() {
    let mut route = known();
    route.record(closely(0, 5), ready(), PRICE);
    let before = route.balance_ns;
    // Five calls without a sample. The last one is caught.
    assert!((0..5).all(|_| !route.begin()));
    route.caught(micros(700), PRICE);
    assert_eq!(route.balance_ns, before + 700_000 - 5 * 10_000);
}

#[test]
fn a_route_on_the_pool_comes_back_after_sixty_four_quick_calls_in_a_row() {
    let mut shared = Shared::default();
    assert!(!shared.count(Duration::ZERO, PRICE, 0), "the route is on the loops");
    assert!(shared.leave(micros(500), 0));
    assert!(!shared.leave(micros(500), 0), "the route has left");
    assert_eq!((shared.place(), shared.is_counting()), (Place::Pool, false));
    let returned_after = (1..).find(|_| shared.count(Duration::ZERO, PRICE, 0));
    assert_eq!((returned_after, shared.place()), (Some(64), Place::Loop));
}

#[test]
fn a_slow_call_subtracts_its_time_up_to_a_hundred_prices() {
    let mut shared = Shared::default();
    shared.leave(micros(500), 0);
    (0..50).for_each(|_| assert!(!shared.count(Duration::ZERO, PRICE, 0)));
    assert_eq!(shared.balance_ns, 500_000);
    shared.count(micros(110), PRICE, 0);
    assert_eq!((shared.balance_ns, shared.is_counting()), (400_000, true));
    shared.count(micros(10), PRICE, 0);
    assert_eq!(shared.balance_ns, 400_000, "the average is the price of a dispatch");
    shared.count(micros(100_000), PRICE, 0);
    assert_eq!((shared.balance_ns, shared.is_counting()), (0, false));
    // A long row survives one slow call among thousands.
    shared.row = ROW_MAX;
    (0..300).for_each(|_| assert!(!shared.count(Duration::ZERO, PRICE, 0)));
    shared.count(micros(100_000), PRICE, 0);
    assert_eq!(shared.balance_ns, 3_000_000 + 10_000 - 1_000_000);
}

#[test]
fn an_early_relapse_requires_a_longer_row_and_a_late_one_does_not() {
    let mut shared = Shared::default();
    let mut calls = 0;
    let mut rows = Vec::new();
    for _ in 0..13 {
        assert!(shared.leave(micros(500), calls));
        rows.push(shared.row);
        calls += u64::from(ROW_MAX) - 1;
        assert!((0..shared.row).any(|_| shared.count(Duration::ZERO, PRICE, calls)));
        calls += u64::from(ROW_MAX) - 1;
    }
    assert_eq!(rows[..4], [64, 128, 256, 512]);
    assert_eq!(rows[10..], [ROW_MAX, ROW_MAX, ROW_MAX]);
    calls += 1;
    assert!(shared.leave(micros(500), calls));
    assert_eq!(shared.row, 64);
}

#[test]
fn samples_on_the_pool_count_quick_calls_and_skip_unknown_ones() {
    let mut shared = Shared::default();
    shared.leave(micros(500), 0);
    let mut sample = |took| {
        let is_back = shared.record(took, PRICE, 0);
        (is_back, shared.balance_ns, shared.held_ns)
    };
    // The average changes by an eighth of the difference.
    assert_eq!(sample(briefly(10)), (false, 10_000, 437_500));
    assert_eq!(sample(briefly(500)), (false, 10_000, 437_500));
    assert_eq!(sample(closely(37, 199)), (false, 0, 437_500 - 400_500 / 8));
}

#[test]
fn the_first_call_sets_the_average_and_an_hour_counts_as_a_minute() {
    let mut shared = Shared::default();
    shared.note(Duration::from_secs(3600));
    assert_eq!(shared.held_ns, 60_000_000_000);
}

#[test]
fn a_route_on_the_pool_runs_on_a_loop_with_little_other_demand() {
    let mut shared = Shared::default();
    assert_eq!(shared.others_max(PRICE), ALWAYS);
    shared.leave(micros(100), 0);
    // A call of 100 us costs others 10 us at 2,000 requests per second. The next lower power of two
    // is 1,024.
    assert_eq!(shared.others_max(PRICE), 1024);
    for (held_us, expected) in [(1000, 16), (1001, 0), (250, 256), (20, 32_768), (1, 32_768)] {
        shared.held_ns = held_us * 1000;
        assert_eq!(shared.others_max(PRICE), expected, "{held_us} us");
    }
}

#[test]
fn a_call_that_did_not_return_keeps_its_route_off_idle_loops() {
    let mut shared = Shared::default();
    shared.leave(micros(100), 0);
    shared.caught();
    assert_eq!((shared.held_ns, shared.others_max(PRICE)), (2_000_000, 0));
    shared.held_ns = 5_000_000;
    shared.caught();
    assert_eq!(shared.held_ns, 5_000_000);
}
