//! Running the program's code while the loop is in its slot. Some calls are measured, and panics
//! are caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::event_loop::{EventLoop, LoopHandle};
use crate::execution::key::Route;
use crate::execution::policy::{Others, Place};
use crate::execution::probe::{CALLS_PER_CLOSE_SAMPLE, Clocks, Probe};
use crate::execution::slot::drop_cold;
use crate::service::panics::take_caught;

/// A call on the pool that takes longer has probably blocked, so a lease may be worthwhile for its
/// connection.
const BLOCKED_MIN: Duration = Duration::from_micros(50);

/// Where a handler's code ran, and whether it blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// It ran on the event loop and returned in time.
    Inline,
    /// It ran on a thread of the pool and did not block.
    Quick,
    /// It blocked its thread.
    Blocked,
}

/// Runs the program's code. A leader puts its loop into the slot meanwhile, from where another
/// thread can take it. The code stores its result in its captures.
#[inline(always)]
pub(super) fn run(
    lead: &mut Option<Box<EventLoop>>,
    clocks: &mut Clocks,
    engine: &Engine,
    loop_handle: &LoopHandle,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, CallOutcome) {
    let (result, call_outcome) = match lead.take() {
        Some(event_loop) => run_leading(event_loop, lead, clocks, engine, loop_handle, route, code),
        None => run_following(clocks, engine, route, code),
    };
    count_panics(engine, &result);
    (result, call_outcome)
}

/// Runs code that does not block. It is not measured, and a leader keeps its loop.
#[inline(never)]
pub(super) fn run_quick(engine: &Engine, code: impl FnOnce()) -> thread::Result<()> {
    let result = catch_unwind(AssertUnwindSafe(code));
    count_panics(engine, &result);
    result
}

#[inline(always)]
fn count_panics(engine: &Engine, result: &thread::Result<()>) {
    let caught = take_caught();
    if caught > 0 {
        engine.counters.panics.add(caught);
    }
    if result.is_err() {
        engine.note_panic("a handler panicked");
    }
}

#[inline(always)]
fn run_leading(
    mut event_loop: Box<EventLoop>,
    lead: &mut Option<Box<EventLoop>>,
    clocks: &Clocks,
    engine: &Engine,
    loop_handle: &LoopHandle,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, CallOutcome) {
    let is_due = event_loop.begin_call(route.key);
    let look = if is_due { Some(begin_look(&mut event_loop, clocks, route)) } else { None };
    let turn = loop_handle.slot.lend(event_loop);
    let result = catch_unwind(AssertUnwindSafe(code));
    let looked = look.map(|(probe, others)| (clocks.end(&probe), others));
    let call_outcome = match loop_handle.slot.take() {
        Some((mut event_loop, taken_turn)) if taken_turn == turn => {
            if let Some((took, others)) = looked {
                let on_loop = event_loop.route_mut(route.key);
                engine.count_move(engine.routes.record_on_loop(route.key, on_loop, took, others));
            }
            lead_again(lead, event_loop);
            CallOutcome::Inline
        }
        // The loop was taken, and its new leader has lent it again.
        Some((event_loop, _)) => {
            event_loop.handle().led_by(clocks.thread());
            lead_again(lead, event_loop);
            CallOutcome::Blocked
        }
        None => CallOutcome::Blocked,
    };
    (result, call_outcome)
}

#[inline(always)]
fn lead_again(lead: &mut Option<Box<EventLoop>>, event_loop: Box<EventLoop>) {
    if let Some(other) = lead.replace(event_loop) {
        drop_cold(other);
    }
}

/// Begins to measure a call on a loop, and records the other demand for the loop.
#[cold]
fn begin_look(event_loop: &mut EventLoop, clocks: &Clocks, route: Route) -> (Probe, Others) {
    let look = event_loop.route_mut(route.key).next_sample();
    (clocks.begin(look), event_loop.others())
}

#[inline(always)]
fn run_following(
    clocks: &mut Clocks,
    engine: &Engine,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, CallOutcome) {
    let is_due = clocks.is_due();
    let probe = clocks.begin_on_pool(is_due);
    let result = catch_unwind(AssertUnwindSafe(code));
    let took = clocks.end_on_pool(&probe);
    let is_back = if is_due {
        engine.crowd.add_busy(took.wall * CALLS_PER_CLOSE_SAMPLE);
        engine.routes.record_on_pool(route.key, took, u64::from(CALLS_PER_CLOSE_SAMPLE))
    } else {
        engine.routes.ran_on_pool(route.key, took)
    };
    engine.count_move(is_back.then_some(Place::Loop));
    (result, if took.wall > BLOCKED_MIN { CallOutcome::Blocked } else { CallOutcome::Quick })
}
