//! Single decisions, at the values where they change. Whole servers are in the simulator.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use super::*;

const PRICE: Duration = Duration::from_micros(10);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A call that was looked at closely: so long it waited, and so long it ran.
fn closely(waited: u64, ran: u64) -> Took {
    let (waited, ran) = (micros(waited), micros(ran));
    Took { wall: waited + ran, waited: Some(waited), ran: Some(ran) }
}

/// A call that only the clock on the wall has seen.
fn briefly(wall: u64) -> Took {
    Took { wall: micros(wall), waited: None, ran: None }
}

fn ready() -> Others {
    Others { are_ready: true, per_second: 0 }
}

#[test]
fn a_call_holds_its_thread_while_it_waits_and_while_it_computes_for_long() {
    assert_eq!(closely(500, 999).held(), Some(micros(500)));
    assert_eq!(closely(500, 1000).held(), Some(micros(1500)));
    assert_eq!(briefly(500).held(), None);
    // Where nobody says how long it ran, it ran whenever it did not wait.
    let took = Took { ran: None, ..closely(500, 1000) };
    assert_eq!(took.held(), Some(micros(1500)));
}

#[test]
fn a_long_call_waits_if_it_does_so_for_most_of_its_time() {
    assert_eq!(closely(14, 0).waits(), None, "it was quick");
    assert_eq!(closely(15, 0).waits(), Some(true));
    assert_eq!(closely(50, 50).waits(), Some(false));
    assert_eq!(closely(51, 50).waits(), Some(true));
    // Without clocks of the thread there is a middle band of which nobody knows.
    let wall = [14, 15, 1000, 1001];
    assert_eq!(wall.map(|wall| briefly(wall).waits()), [None, None, None, Some(true)]);
}

#[test]
fn on_the_pool_a_quick_call_held_nothing_and_a_middling_one_tells_nothing() {
    let wall = [14, 15, 1000, 1001];
    assert_eq!(
        wall.map(|wall| briefly(wall).held_on_pool()),
        [Some(Duration::ZERO), None, None, Some(micros(1001))]
    );
    assert_eq!(closely(14, 0).held_on_pool(), Some(Duration::ZERO));
    assert_eq!(closely(15, 0).held_on_pool(), Some(micros(15)));
    assert_eq!(closely(15, 500).held_on_pool(), Some(micros(15)));
}

#[test]
fn others_lose_the_time_that_is_left_when_they_come() {
    let lose = |are_ready, per_second, held| Others { are_ready, per_second }.lose(micros(held));
    assert_eq!(lose(true, 0, 1000), 1_000_000);
    assert_eq!(lose(false, 0, 1000), 0);
    // One in ten comes meanwhile, after half of the time on average.
    assert_eq!(lose(false, 100, 1000), 50_000);
    assert_eq!(lose(false, 1000, 1000), 500_000);
    // No more than all of it, however many come.
    assert_eq!(lose(false, 1_000_000, 1000), 1_000_000);
}

#[test]
fn a_new_route_is_looked_at_closely_sixteen_times_and_then_briefly_one_call_in_sixteen() {
    let mut route = OnLoop::default();
    let mut looks = Vec::new();
    for call in 1..=80 {
        if route.begin() {
            let look = route.look();
            looks.push((call, look));
            let took = if look == Look::Close { closely(0, 5) } else { briefly(5) };
            assert!(!route.looked(took, ready(), PRICE));
        }
    }
    let close = (1..=16).map(|call| (call, Look::Close));
    let brief = [32, 48, 64, 80].map(|call| (call, Look::Brief));
    assert_eq!(looks, close.chain(brief).collect::<Vec<_>>());
}

/// A route of which all is known, and that has neither credit nor debts.
fn known() -> OnLoop {
    let mut route = OnLoop::default();
    for _ in 0..FIRST_LOOKS {
        assert_eq!((route.begin(), route.look()), (true, Look::Close));
    }
    route
}

#[test]
fn a_call_that_looks_long_is_followed_by_four_close_looks() {
    for (wall, closely) in [(29, 0), (30, LOOKS_AFTER_LONG)] {
        let mut route = known();
        assert!(!route.looked(briefly(wall), ready(), PRICE));
        assert_eq!((route.closely, route.left == 0), (closely, closely > 0), "{wall} us");
    }
}

#[test]
fn a_route_that_computes_for_long_is_looked_at_closely_each_time() {
    let mut route = known();
    assert!(!route.looked(closely(0, 500), ready(), PRICE));
    assert_eq!((route.look(), route.left), (Look::Close, 0));
    assert!(!route.looked(closely(0, 29), ready(), PRICE));
    assert_eq!(route.look(), Look::Brief);
}

#[test]
fn a_call_that_waits_is_followed_by_thirty_two_close_looks() {
    for (took, follow) in [
        (closely(19, 0), 0),
        (closely(20, 0), LOOKS_AFTER_WAIT),
        (closely(0, 999), 0),
        (closely(0, 1000), LOOKS_AFTER_WAIT),
    ] {
        let mut route = known();
        route.looked(took, ready(), PRICE);
        assert_eq!(route.closely, follow, "{took:?}");
    }
}

#[test]
fn a_route_leaves_when_others_have_lost_two_milliseconds_more_than_dispatches_cost() {
    let mut route = known();
    // 510 us of each look are lost, and 10 us would have been paid.
    let leaves: Vec<bool> = (0..5).map(|_| route.looked(closely(510, 0), ready(), PRICE)).collect();
    assert_eq!(leaves, [false, false, false, true, true]);
    assert_eq!(route.balance_ns, 2_500_000);
    route.start_over();
    assert_eq!((route.balance_ns, route.is_known), (0, false));
}

#[test]
fn nobody_loses_more_than_three_milliseconds_to_one_call() {
    let mut route = known();
    assert!(route.looked(closely(100_000, 0), ready(), PRICE));
    assert_eq!(route.balance_ns, 3_000_000 - 10_000);
    let mut alone = known();
    assert!(!alone.looked(closely(100_000, 0), Others::default(), PRICE));
    assert_eq!(alone.balance_ns, -10_000);
}

#[test]
fn quick_calls_save_up_four_milliseconds_at_most() {
    let mut route = known();
    assert!(!route.looked(closely(0, 5), ready(), PRICE));
    // The look stands for sixteen calls.
    assert_eq!(route.balance_ns, -160_000);
    for _ in 0..100 {
        assert!(!route.looked(closely(0, 5), ready(), PRICE));
    }
    assert_eq!(route.balance_ns, -4_000_000);
    // Two waits of 2.99 ms use that up, the third has the route leave.
    let leaves: Vec<bool> =
        (0..3).map(|_| route.looked(closely(3000, 0), ready(), PRICE)).collect();
    assert_eq!(leaves, [false, false, true]);
    for _ in 0..100 {
        route.looked(closely(3000, 0), ready(), PRICE);
    }
    assert_eq!(route.balance_ns, 8_000_000, "what it owes is bounded as well");
}

#[test]
fn a_brief_look_at_quick_calls_saves_as_much() {
    let mut route = known();
    assert!(!route.looked(briefly(5), ready(), PRICE));
    assert_eq!((route.balance_ns, route.left), (-160_000, 15));
}

#[test]
fn a_call_that_is_caught_counts_for_its_time_and_right_after_another_for_all_that_any_can() {
    let mut route = known();
    // No call came since the last look.
    route.left = CALLS_PER_LOOK - 1;
    assert!(!route.caught(micros(700), PRICE));
    assert_eq!((route.balance_ns, route.closely, route.left), (700_000, LOOKS_AFTER_WAIT, 0));
    assert!(route.caught(micros(700), PRICE));
    assert_eq!(route.balance_ns, 3_700_000);
    // After two calls that returned it is one for itself again.
    let mut route = known();
    route.left = CALLS_PER_LOOK - 1;
    route.caught(micros(700), PRICE);
    for _ in 0..2 {
        assert!(route.begin());
        assert_eq!(route.look(), Look::Close);
        route.looked(closely(0, 5), ready(), PRICE);
    }
    let before = route.balance_ns;
    assert!(!route.caught(micros(700), PRICE));
    assert_eq!(route.balance_ns, before + 700_000);
}

#[test]
fn calls_between_two_looks_are_paid_for_when_one_is_caught() {
    let mut route = known();
    route.looked(closely(0, 5), ready(), PRICE);
    let before = route.balance_ns;
    // Five calls, of which nobody looked at any; the last one is caught.
    assert!((0..5).all(|_| !route.begin()));
    route.caught(micros(700), PRICE);
    assert_eq!(route.balance_ns, before + 700_000 - 5 * 10_000);
}

#[test]
fn a_route_on_the_pool_comes_back_after_sixty_four_quick_calls_in_a_row() {
    let mut shared = Shared::default();
    assert!(!shared.count(Duration::ZERO, PRICE, 0), "it is on the loops");
    assert!(shared.leave(micros(500), 0));
    assert!(!shared.leave(micros(500), 0), "it has left");
    assert_eq!((shared.place(), shared.is_counting()), (Place::Pool, false));
    let returned_after = (1..).find(|_| shared.count(Duration::ZERO, PRICE, 0));
    assert_eq!((returned_after, shared.place()), (Some(64), Place::Loop));
}

#[test]
fn a_slow_call_takes_off_what_it_held_and_no_more_than_a_hundred_prices() {
    let mut shared = Shared::default();
    shared.leave(micros(500), 0);
    (0..50).for_each(|_| assert!(!shared.count(Duration::ZERO, PRICE, 0)));
    assert_eq!(shared.balance_ns, 500_000);
    shared.count(micros(110), PRICE, 0);
    assert_eq!((shared.balance_ns, shared.is_counting()), (400_000, true));
    shared.count(micros(10), PRICE, 0);
    assert_eq!(shared.balance_ns, 400_000, "what it held is what a dispatch costs");
    shared.count(micros(100_000), PRICE, 0);
    assert_eq!((shared.balance_ns, shared.is_counting()), (0, false));
    // A long row outlives one slow call among thousands.
    shared.row = ROW_MAX;
    (0..300).for_each(|_| assert!(!shared.count(Duration::ZERO, PRICE, 0)));
    shared.count(micros(100_000), PRICE, 0);
    assert_eq!(shared.balance_ns, 3_000_000 + 10_000 - 1_000_000);
}

#[test]
fn a_relapse_asks_for_a_longer_row_and_a_late_one_does_not() {
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
fn looks_on_the_pool_count_quick_calls_and_pass_over_what_they_cannot_tell() {
    let mut shared = Shared::default();
    shared.leave(micros(500), 0);
    let mut look = |took| {
        let is_back = shared.looked(took, PRICE, 0);
        (is_back, shared.balance_ns, shared.held_ns)
    };
    // The average takes in an eighth.
    assert_eq!(look(briefly(10)), (false, 10_000, 437_500));
    assert_eq!(look(briefly(500)), (false, 10_000, 437_500));
    assert_eq!(look(closely(37, 300)), (false, 0, 437_500 - 400_500 / 8));
}

#[test]
fn the_first_call_is_the_average_and_an_hour_counts_as_a_minute() {
    let mut shared = Shared::default();
    shared.note(Duration::from_secs(3600));
    assert_eq!(shared.held_ns, 60_000_000_000);
}

#[test]
fn a_route_of_the_pool_runs_on_a_loop_that_few_others_want() {
    let mut shared = Shared::default();
    assert_eq!(shared.others_max(PRICE), ALWAYS);
    shared.leave(micros(100), 0);
    // 100 us cost others 10 us where 2,000 come in a second, and 1,024 is the power of two below.
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
