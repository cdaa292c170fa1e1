//! A server without threads or clocks in which the real policy decides. It has clients in a closed
//! loop, two event loops, a watchdog and a pool. Each pattern of waits gives the same figures on
//! every machine.
//!
//! `cargo test -p filoplume-runtime --lib simulator -- --nocapture` prints the table of
//! docs/decisions/0017.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::policy::{ALWAYS, CallTimes, OnLoop, Others, Place, Sample, Shared};

const LOOPS: usize = 2;

/// The time of the loop per request without its handler, and of a handler that does not wait.
const REQUEST: u64 = 4_000;
const COMPUTES: u64 = 1_000;

/// The time of a dispatch on the loop, and on the thread that runs the call.
const DISPATCH: u64 = 5_000;
/// The price of a dispatch, on both threads.
const PRICE: Duration = Duration::from_nanos(2 * DISPATCH);
/// The time until the thread that runs a dispatched call is awake.
const WAKE_UP: u64 = 30_000;
/// The time in which a response and the next request are on the network.
const CLIENT: u64 = 50_000;
/// When the watchdog takes a loop after a recent catch. Otherwise it takes twelve times as long.
const PERIOD: u64 = 375_000;
/// The time until the new leader leads.
const HAND_OVER: u64 = 30_000;

const SECOND: u64 = 1_000_000_000;

/// Returns how long a call waits, from its number and the time.
type WaitPattern = fn(u64, u64) -> u64;

struct Simulation {
    clients: usize,
    waits: WaitPattern,
    seconds: u64,
    /// When the watchdog takes a loop.
    period: u64,
}

/// The results of a simulation.
#[derive(Debug, Default)]
struct Outcome {
    per_second: u64,
    /// The 99th percentile of the latencies of requests that did not wait themselves.
    hits_p99: Duration,
    /// When the route moved, in milliseconds, and to which place.
    moves: Vec<(u64, Place)>,
    dispatched: u64,
    caught: u64,
    calls: u64,
}

#[derive(Default)]
struct Loop {
    free_at: u64,
    ready: VecDeque<(u64, usize)>,
    route: OnLoop,
    served: u64,
}

impl Simulation {
    fn of(clients: usize, waits: WaitPattern, seconds: u64) -> Self {
        Self { clients, waits, seconds, period: PERIOD }
    }

    fn run(&self) -> Outcome {
        let mut running = Running::new(self);
        while let Some((now, index)) = running.next_turn() {
            if now >= self.seconds * SECOND {
                break;
            }
            running.serve(index, now);
        }
        running.into_outcome()
    }
}

/// The state of a running simulation: the server and the network.
struct Running<'a> {
    simulation: &'a Simulation,
    loops: [Loop; LOOPS],
    shared: Shared,
    /// Requests on the network, ordered by arrival.
    arrivals: BinaryHeap<Reverse<(u64, usize)>>,
    /// The latencies of requests that did not wait themselves.
    hits: Vec<u64>,
    /// The results so far.
    outcome: Outcome,
}

/// A call of the handler.
struct Call {
    /// When a loop began the request.
    now: u64,
    /// How long the handler waits.
    waits: u64,
    others: Others,
}

impl Call {
    fn times(&self) -> CallTimes {
        CallTimes {
            wall: Duration::from_nanos(COMPUTES + self.waits),
            waited: Some(Duration::from_nanos(self.waits)),
            ran: Some(Duration::from_nanos(COMPUTES)),
        }
    }
}

impl<'a> Running<'a> {
    fn new(simulation: &'a Simulation) -> Self {
        let arrivals = (0..simulation.clients)
            .map(|client| Reverse((client as u64 * 1_000, client)))
            .collect();
        Self {
            simulation,
            loops: Default::default(),
            shared: Shared::default(),
            arrivals,
            hits: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// Returns which loop begins a request next, and when. Requests that arrive until then become
    /// ready.
    fn next_turn(&mut self) -> Option<(u64, usize)> {
        loop {
            let turn =
                (0..LOOPS).filter_map(|index| Some((self.loops[index].begins_at()?, index))).min();
            let Some(&Reverse((at, client))) = self.arrivals.peek() else { return turn };
            if turn.is_some_and(|(begins_at, _)| begins_at < at) {
                return turn;
            }
            self.arrivals.pop();
            self.loops[client % LOOPS].ready.push_back((at, client));
        }
    }

    /// Serves the first ready request of a loop, and schedules the next one of its client.
    fn serve(&mut self, index: usize, now: u64) {
        let led = &mut self.loops[index];
        let (arrived, client) = led.ready.pop_front().unwrap();
        led.served += 1;
        let others = led.others(now, self.simulation.clients);
        let waits = (self.simulation.waits)(self.outcome.calls, now);
        self.outcome.calls += 1;
        let call = Call { now, waits, others };
        let others_max = self.shared.others_max(PRICE);
        let is_inline =
            others_max == ALWAYS || (!others.are_ready && others.per_second <= others_max);
        let done =
            if is_inline { self.run_inline(index, &call) } else { self.dispatch(index, &call) };
        if waits == 0 {
            self.hits.push(done - arrived);
        }
        self.arrivals.push(Reverse((done + CLIENT, client)));
    }

    /// Runs a call on its loop. Returns when it is done.
    fn run_inline(&mut self, index: usize, call: &Call) -> u64 {
        let led = &mut self.loops[index];
        let began = call.now + REQUEST;
        let done = began + COMPUTES + call.waits;
        let sample = led.route.begin().then(|| led.route.next_sample());
        if call.waits > self.simulation.period {
            led.free_at = began + self.simulation.period + HAND_OVER;
            self.catch(index, call);
        } else {
            led.free_at = done;
            if let Some(sample) = sample {
                self.record(index, call, sample);
            }
        }
        done
    }

    /// Records that the watchdog took the loop from a call.
    fn catch(&mut self, index: usize, call: &Call) {
        self.outcome.caught += 1;
        let held = Duration::from_nanos(self.simulation.period);
        if self.loops[index].route.caught(held, PRICE) {
            self.leave_loops(index, call);
        }
    }

    /// Records a call that was measured on its loop.
    fn record(&mut self, index: usize, call: &Call, sample: Sample) {
        let times = match sample {
            Sample::Close => call.times(),
            Sample::Brief => CallTimes { waited: None, ran: None, ..call.times() },
        };
        let route = &mut self.loops[index].route;
        if self.shared.others_max(PRICE) != ALWAYS {
            // The route is on the pool. Only this call ran on the loop, because the loop was idle.
            route.record(times, Others::default(), PRICE);
            let is_back = self.shared.record(times, PRICE, self.outcome.calls);
            self.outcome.moved(is_back, call.now, Place::Loop);
        } else if route.record(times, call.others, PRICE) {
            self.leave_loops(index, call);
        }
    }

    /// Moves the route to the pool, because its calls cost too much on this loop.
    fn leave_loops(&mut self, index: usize, call: &Call) {
        self.loops[index].route.start_over();
        let is_new = self.shared.leave(call.times().wall, self.outcome.calls);
        self.outcome.moved(is_new, call.now, Place::Pool);
    }

    /// Runs a call on the pool. Returns when it is done.
    fn dispatch(&mut self, index: usize, call: &Call) -> u64 {
        let passed_on = call.now + REQUEST + DISPATCH;
        self.loops[index].free_at = passed_on;
        self.outcome.dispatched += 1;
        let is_back = if self.outcome.dispatched % 16 == 0 {
            self.shared.record(call.times(), PRICE, self.outcome.calls)
        } else {
            let held = call.times().held_on_pool().unwrap();
            self.shared.count(held, PRICE, self.outcome.calls)
        };
        self.outcome.moved(is_back, call.now, Place::Loop);
        passed_on + WAKE_UP + COMPUTES + call.waits + DISPATCH
    }

    fn into_outcome(mut self) -> Outcome {
        self.hits.sort_unstable();
        let p99 = self.hits.get(self.hits.len() * 99 / 100).copied().unwrap_or(0);
        Outcome {
            per_second: self.outcome.calls / self.simulation.seconds,
            hits_p99: Duration::from_nanos(p99),
            ..self.outcome
        }
    }
}

impl Loop {
    /// Returns when the loop can begin its first ready request.
    fn begins_at(&self) -> Option<u64> {
        let (arrived, _) = self.ready.front()?;
        Some(self.free_at.max(*arrived))
    }

    /// Returns the demand of other connections at this time.
    fn others(&self, now: u64, clients: usize) -> Others {
        let per_second = if clients > LOOPS {
            u32::try_from(self.served * SECOND / now.max(SECOND / 50)).unwrap()
        } else {
            0
        };
        Others { are_ready: self.ready.front().is_some_and(|(at, _)| *at <= now), per_second }
    }
}

impl Outcome {
    /// Records the move of the route, if it `moves`.
    fn moved(&mut self, moves: bool, now: u64, place: Place) {
        if moves {
            self.moves.push((now / 1_000_000, place));
        }
    }
}

/// Simulates 64 clients whose calls wait like this.
fn with_64(waits: WaitPattern) -> Outcome {
    Simulation::of(64, waits, 2).run()
}

/// Returns pseudo-random numbers that are the same in each run.
fn chance(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn misses(number: u64, one_in: u64, millis: u64) -> u64 {
    if chance(number) % one_in == 0 { millis * 1_000_000 } else { 0 }
}

const MILLI: u64 = 1_000_000;

#[test]
#[allow(clippy::print_stdout, reason = "`--nocapture` shows the table of the decision record")]
fn the_table_of_the_decision_record() {
    let patterns: [(&str, WaitPattern); 17] = [
        ("no waits", |_, _| 0),
        ("20 us", |_, _| 20_000),
        ("50 us", |_, _| 50_000),
        ("100 us", |_, _| 100_000),
        ("300 us", |_, _| 300_000),
        ("1 ms", |_, _| MILLI),
        ("2 ms", |_, _| 2 * MILLI),
        ("20 ms", |_, _| 20 * MILLI),
        ("1 of 10: 1 ms", |number, _| misses(number, 10, 1)),
        ("1 of 10: 5 ms", |number, _| misses(number, 10, 5)),
        ("1 of 10: 20 ms", |number, _| misses(number, 10, 20)),
        ("1 of 100: 1 ms", |number, _| misses(number, 100, 1)),
        ("1 of 100: 5 ms", |number, _| misses(number, 100, 5)),
        ("1 of 100: 20 ms", |number, _| misses(number, 100, 20)),
        ("1 of 1,000: 1 ms", |number, _| misses(number, 1_000, 1)),
        ("1 of 1,000: 5 ms", |number, _| misses(number, 1_000, 5)),
        ("1 of 1,000: 20 ms", |number, _| misses(number, 1_000, 20)),
    ];
    println!(
        "| a call waits | requests/s | dispatched | hits' p99 | moves | first after \
         |\n|---|---|---|---|---|---|"
    );
    for (name, waits) in patterns {
        let outcome = Simulation::of(64, waits, 1).run();
        let first = outcome.moves.first().map_or("-".to_owned(), |(at, _)| format!("{at} ms"));
        let hits_p99 = match outcome.hits_p99 {
            Duration::ZERO => "-".to_owned(),
            p99 => format!("{p99:.1?}"),
        };
        println!(
            "| {name} | {} | {} % | {hits_p99} | {} | {first} |",
            outcome.per_second,
            outcome.dispatched * 100 / outcome.calls,
            outcome.moves.len(),
        );
        assert!(outcome.moves.len() <= 6, "{name} does not oscillate: {:?}", outcome.moves);
        assert!(outcome.hits_p99 <= Duration::from_millis(3), "{name}: {outcome:?}");
    }
}

/// Prints where the calls of a route run, and since when.
#[test]
#[allow(clippy::print_stdout, reason = "`--nocapture` shows the table of the README")]
fn the_table_of_decisions_over_time() {
    const MS: u64 = MILLI;
    let patterns: [(&str, usize, WaitPattern); 8] =
        [
            ("always 300 us", 2, |_, _| 300_000),
            ("always 20 ms", 2, |_, _| 20 * MS),
            (
                "1 ms from 1 s to 2 s",
                4,
                |_, now| {
                    if (1000..2000).contains(&(now / MS)) { MS } else { 0 }
                },
            ),
            ("300 us in every other half second", 8, |_, now| {
                if now / MS / 500 % 2 == 1 { 300_000 } else { 0 }
            }),
            ("2 ms in every tenth of a second for 10 ms", 60, |_, now| {
                if now / MS % 100 < 10 { 2 * MS } else { 0 }
            }),
            ("1 of 10 for 5 ms", 6, |number, _| misses(number, 10, 5)),
            ("1 of 100 for 5 ms", 24, |number, _| misses(number, 100, 5)),
            ("1 of 1,000 for 5 ms", 2, |number, _| misses(number, 1_000, 5)),
        ];
    println!("| calls wait | moves in 3 s | the first ones | dispatched |\n|---|---|---|---|");
    for (name, moves_max, waits) in patterns {
        let Outcome { moves, dispatched, calls, .. } = Simulation::of(64, waits, 3).run();
        let text = |(at, place): &(u64, Place)| {
            format!("{at} ms {}", if *place == Place::Pool { "pool" } else { "loop" })
        };
        let first: Vec<String> = moves.iter().take(6).map(text).collect();
        let share = dispatched * 100 / calls;
        println!("| {name} | {} | {} | {share} % |", moves.len(), first.join(", "));
        assert!(moves.len() <= moves_max, "{name} oscillates: {moves:?}");
        assert!(moves.windows(2).all(|pair| pair[0].1 != pair[1].1), "{name}: {moves:?}");
    }
}

#[test]
fn calls_that_do_not_wait_never_leave_the_loops() {
    let outcome = with_64(|_, _| 0);
    assert_eq!((outcome.dispatched, outcome.moves.len()), (0, 0));
}

#[test]
fn each_wait_that_costs_more_than_a_dispatch_is_detected_within_milliseconds() {
    for waits in [
        (|_, _| 50_000) as WaitPattern,
        |_, _| 100_000,
        |_, _| 300_000,
        |_, _| MILLI,
        |_, _| 3 * MILLI,
        |_, _| 100 * MILLI,
    ] {
        let outcome = with_64(waits);
        assert_eq!(outcome.moves.len(), 1, "{outcome:?}");
        let (at, place) = outcome.moves[0];
        assert!(at <= 12 && place == Place::Pool, "{outcome:?}");
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "as above")]
fn a_database_that_becomes_slow_is_detected_within_a_tenth_of_a_second() {
    for (name, waits) in [
        ("100 us", (|_, now| if now < SECOND { 0 } else { 100_000 }) as WaitPattern),
        ("300 us", |_, now| if now < SECOND { 0 } else { 300_000 }),
        ("1 ms", |_, now| if now < SECOND { 0 } else { MILLI }),
        ("3 ms", |_, now| if now < SECOND { 0 } else { 3 * MILLI }),
        ("50 ms", |_, now| if now < SECOND { 0 } else { 50 * MILLI }),
    ] {
        for period in [PERIOD, 12 * PERIOD] {
            let outcome = Simulation { period, ..Simulation::of(64, waits, 2) }.run();
            assert_eq!(outcome.moves.len(), 1, "{outcome:?}");
            let known_after = outcome.moves[0].0.checked_sub(1_000).unwrap();
            println!(
                "suddenly {name}, a watchdog that takes {} us: detected after {known_after} ms",
                period / 1_000
            );
            assert!(known_after < 100, "{outcome:?}");
        }
    }
}

#[test]
fn a_route_that_stops_waiting_returns_to_the_loops() {
    let outcome = with_64(|_, now| if now < SECOND { MILLI } else { 0 });
    let places: Vec<Place> = outcome.moves.iter().map(|(_, place)| *place).collect();
    assert_eq!(places, [Place::Pool, Place::Loop], "{outcome:?}");
    assert!((1_000..1_050).contains(&outcome.moves[1].0), "{outcome:?}");
}

#[test]
fn a_route_that_alternates_moves_once_per_phase() {
    // Each phase lasts half a second.
    let waits: WaitPattern = |_, now| if now / (SECOND / 2) % 2 == 0 { MILLI } else { 0 };
    let outcome = Simulation::of(64, waits, 5).run();
    assert!(outcome.moves.len() <= 12, "{:?}", outcome.moves);
}

#[test]
fn one_waiting_call_in_a_thousand_does_not_move_the_route() {
    for waits in [
        (|number, _| misses(number, 1_000, 1)) as WaitPattern,
        |number, _| misses(number, 1_000, 5),
        |number, _| misses(number, 1_000, 20),
    ] {
        let outcome = with_64(waits);
        assert!(outcome.dispatched * 20 <= outcome.calls, "{outcome:?}");
    }
}

#[test]
fn one_waiting_call_in_ten_moves_the_route() {
    let outcome = with_64(|number, _| misses(number, 10, 1));
    assert!(outcome.dispatched * 10 >= outcome.calls * 9, "{outcome:?}");
}

#[test]
fn a_lone_client_stays_on_its_loop() {
    for waits in [(|_, _| 100_000) as WaitPattern, |_, _| 700_000] {
        let outcome = Simulation::of(1, waits, 1).run();
        assert_eq!(outcome.dispatched, 0, "{outcome:?}");
    }
}
