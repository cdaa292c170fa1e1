//! Running the program's code while the loop is in its slot. Some calls are measured, and panics
//! are caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::engine::Engine;
use crate::engine::event_loop::{EventLoop, LoopHandle};
use crate::execution::key::Route;
use crate::execution::lease;
use crate::execution::policy::{CallTimes, Place, Sample};
use crate::execution::probe::{Clocks, LoopSample, Measured};
use crate::execution::slot::drop_cold;
use crate::service::panics::take_caught;

/// Where a handler's code ran, and whether it blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// It ran on the event loop and returned in time.
    Inline,
    /// As `Inline`, and it was measured for its exchange.
    InlineMeasured,
    /// It ran on a thread of the pool and did not block.
    Quick,
    /// It blocked its thread.
    Blocked,
}

/// Whether a call is measured for its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Never,
    /// If it is a sample, or runs on the pool, or loses its loop.
    Sampled,
    Always,
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
    measure: Measure,
    code: impl FnOnce(),
) -> (thread::Result<()>, CallOutcome) {
    let (result, call_outcome) = match lead.take() {
        Some(event_loop) => {
            run_leading(event_loop, lead, clocks, engine, loop_handle, route, measure, code)
        }
        None => run_following(clocks, engine, route, measure, code),
    };
    count_panics(engine, &result);
    (result, call_outcome)
}

/// As [`run`], for the rare paths: one copy for all of them.
#[inline(never)]
pub(super) fn run_rare(
    lead: &mut Option<Box<EventLoop>>,
    clocks: &mut Clocks,
    engine: &Engine,
    loop_handle: &LoopHandle,
    route: Route,
    code: &mut dyn FnMut(),
) -> (thread::Result<()>, CallOutcome) {
    run(lead, clocks, engine, loop_handle, route, Measure::Never, code)
}

/// Runs code that does not block. It is not measured, and a leader keeps its loop.
#[inline(never)]
pub(super) fn run_quick(engine: &Engine, code: impl FnOnce()) -> thread::Result<()> {
    let result = catch_unwind(AssertUnwindSafe(code));
    count_panics(engine, &result);
    result
}

/// Runs code of the program that belongs to no connection, and counts its panic.
pub(crate) fn run_counted(engine: &Engine, code: impl FnOnce()) -> thread::Result<()> {
    run_quick(engine, code)
}

/// Counts the panics that were noted outside of a call, such as in an answer to a refused request.
/// Called when a thread ends its work, so that no panic stays uncounted until the next call.
#[inline(always)]
pub(super) fn count_noted(engine: &Engine) {
    let caught = take_caught();
    if caught > 0 {
        engine.counters.panics.add(caught);
    }
}

#[inline(always)]
fn count_panics(engine: &Engine, result: &thread::Result<()>) {
    count_noted(engine);
    if result.is_err() {
        engine.note_panic("a handler panicked");
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are borrowed from one worker, each alone")]
fn run_leading(
    mut event_loop: Box<EventLoop>,
    lead: &mut Option<Box<EventLoop>>,
    clocks: &mut Clocks,
    engine: &Engine,
    loop_handle: &LoopHandle,
    route: Route,
    measure: Measure,
    code: impl FnOnce(),
) -> (thread::Result<()>, CallOutcome) {
    let is_due = event_loop.begin_call(route);
    let is_looked_at = is_due | (measure == Measure::Always);
    if is_looked_at {
        begin_look(&mut event_loop, clocks, route, is_due, measure);
    }
    let turn = loop_handle.slot.lend(event_loop);
    let result = catch_unwind(AssertUnwindSafe(code));
    if is_looked_at {
        clocks.end_look();
    }
    let call_outcome = match loop_handle.slot.take() {
        Some((mut event_loop, taken_turn)) if taken_turn == turn => {
            let mut call_outcome = CallOutcome::Inline;
            if is_looked_at {
                call_outcome = end_look(&mut event_loop, clocks, engine, route, measure);
            }
            lead_again(lead, event_loop);
            call_outcome
        }
        // The loop was taken, and its new leader has lent it again.
        Some((mut event_loop, taken_turn)) => {
            loop_handle.taken_by_late_leader(&mut event_loop, taken_turn);
            loop_handle.note_returned(turn);
            event_loop.handle().led_by(clocks.thread());
            lead_again(lead, event_loop);
            note_caught(clocks, engine, route, measure)
        }
        None => {
            loop_handle.note_returned(turn);
            note_caught(clocks, engine, route, measure)
        }
    };
    (result, call_outcome)
}

#[inline(always)]
fn lead_again(lead: &mut Option<Box<EventLoop>>, event_loop: Box<EventLoop>) {
    if let Some(other) = lead.replace(event_loop) {
        drop_cold(other);
    }
}

/// Begins to measure a call on a loop, and records how much other connections need the loop.
#[cold]
#[inline(never)]
fn begin_look(
    event_loop: &mut EventLoop,
    clocks: &mut Clocks,
    route: Route,
    is_due: bool,
    measure: Measure,
) {
    let mut how = Sample::Close;
    let mut sample = None;
    if is_due {
        let on_loop = event_loop.route_mut(route.key);
        let stands_for = on_loop.next_stands_for().into();
        how = on_loop.next_sample();
        sample = Some(LoopSample { others: event_loop.others(), stands_for });
    }
    if measure == Measure::Always {
        how = Sample::Close;
    }
    clocks.begin_look(how, sample);
}

/// Passes a measurement on to the policy, and keeps it for the exchange.
#[cold]
#[inline(never)]
fn end_look(
    event_loop: &mut EventLoop,
    clocks: &mut Clocks,
    engine: &Engine,
    route: Route,
    measure: Measure,
) -> CallOutcome {
    let Some((started, took, sample)) = clocks.take_look() else { return CallOutcome::Inline };
    engine.note_ran(route.key, took);
    let stands_for = match (measure, sample) {
        (Measure::Sampled | Measure::Never, Some(sample)) => sample.stands_for,
        _ => 1,
    };
    engine.routes.count_on_loop(route.key, stands_for, took);
    if let Some(LoopSample { others, .. }) = sample {
        let on_loop = event_loop.route_mut(route.key);
        engine.count_move(engine.routes.record_on_loop(route.key, on_loop, took, others));
    }
    if measure == Measure::Never {
        return CallOutcome::Inline;
    }
    clocks.measured = Some(Measured { started, took, stands_for, was_caught: false });
    CallOutcome::InlineMeasured
}

/// Keeps the times of a call that has lost its loop, if it was a sample.
#[cold]
#[inline(never)]
fn note_caught(
    clocks: &mut Clocks,
    engine: &Engine,
    route: Route,
    measure: Measure,
) -> CallOutcome {
    let look = clocks.take_look();
    if let Some((_, took, sample)) = look {
        engine.note_ran(route.key, took);
        if let (Measure::Never, Some(sample)) = (measure, sample) {
            // Calls that are measured for their exchange are counted in `Worker::called`, samples
            // or not.
            engine.routes.count_on_loop(route.key, sample.stands_for, took);
        }
    }
    let look = look.filter(|_| measure != Measure::Never);
    clocks.measured =
        look.map(|(started, took, _)| Measured { started, took, stands_for: 1, was_caught: true });
    CallOutcome::Blocked
}

#[inline(always)]
fn run_following(
    clocks: &mut Clocks,
    engine: &Engine,
    route: Route,
    measure: Measure,
    code: impl FnOnce(),
) -> (thread::Result<()>, CallOutcome) {
    let is_measured = measure != Measure::Never;
    let sample = clocks.next_pool_sample();
    let probe = clocks.begin_on_pool(is_measured | sample.is_some());
    let is_noted = engine.calls.begin(clocks.slot(), route.id(), probe.started);
    let result = catch_unwind(AssertUnwindSafe(code));
    let took = clocks.end_on_pool(&probe);
    if is_noted {
        engine.calls.end(clocks.slot(), route.id(), took.wall);
    }
    if is_measured {
        let started = probe.started;
        clocks.measured = Some(Measured { started, took, stands_for: 1, was_caught: false });
        engine.routes.count_on_pool(route.key, 1, took);
    } else if let Some(stands_for) = sample {
        engine.routes.count_on_pool(route.key, stands_for, took);
    }
    let is_back = if let Some(stands_for) = sample {
        engine.crowd.add_busy(took.wall * stands_for);
        engine.note_ran(route.key, took);
        engine.routes.record_on_pool(route.key, took)
    } else {
        engine.routes.ran_on_pool(route.key, CallTimes { waited: None, ran: None, ..took })
    };
    engine.count_move(is_back.then_some(Place::Loop));
    (result, if lease::has_blocked(took.wall) { CallOutcome::Blocked } else { CallOutcome::Quick })
}
