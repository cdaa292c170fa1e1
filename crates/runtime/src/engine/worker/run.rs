//! Code of the program's, run with the loop out of hand: measured now and then, and caught if it
//! panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::event_loop::{EventLoop, LoopHandle};
use crate::execution::key::Route;
use crate::execution::policy::{Others, Place};
use crate::execution::probe::{CALLS_PER_CLOSE_LOOK, Clocks, Probe};
use crate::execution::slot::free_other;
use crate::service::panics::take_caught;

/// A call on the pool that takes longer has probably waited: for its connection, a lease may pay.
const BLOCKED_MIN: Duration = Duration::from_micros(50);

/// How long a handler's code took, as far as anyone looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    /// It ran on the event loop and returned in time.
    Inline,
    /// It ran on a thread of the pool and did not block.
    Quick,
    /// It blocked its thread.
    Blocked,
}

/// Runs code of the program's. A leader lays its loop into the slot meanwhile, from where it can be
/// taken. What the code has to say it leaves with its caller.
#[inline(always)]
pub(super) fn run(
    lead: &mut Option<Box<EventLoop>>,
    clocks: &mut Clocks,
    engine: &Engine,
    home: &LoopHandle,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, Conduct) {
    let (result, conduct) = match lead.take() {
        Some(event_loop) => run_leading(event_loop, lead, clocks, engine, home, route, code),
        None => run_following(clocks, engine, route, code),
    };
    let caught = take_caught();
    if caught > 0 {
        engine.counters.panics.add(caught);
    }
    if result.is_err() {
        engine.note_panic("a handler panicked");
    }
    (result, conduct)
}

#[inline(always)]
fn run_leading(
    mut event_loop: Box<EventLoop>,
    lead: &mut Option<Box<EventLoop>>,
    clocks: &Clocks,
    engine: &Engine,
    home: &LoopHandle,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, Conduct) {
    let is_due = event_loop.begin_call(route.key);
    let look = if is_due { Some(begin_look(&mut event_loop, clocks, route)) } else { None };
    let turn = home.slot.lend(event_loop);
    let result = catch_unwind(AssertUnwindSafe(code));
    let looked = look.map(|(probe, others)| (clocks.end(&probe), others));
    let conduct = match home.slot.take() {
        Some((mut event_loop, taken_turn)) if taken_turn == turn => {
            if let Some((took, others)) = looked {
                let on_loop = event_loop.route_mut(route.key);
                engine.count_move(engine.routes.looked_on_loop(route.key, on_loop, took, others));
            }
            lead_again(lead, event_loop);
            Conduct::Inline
        }
        // The loop that is there is back from others: it was taken, and lent again by its new
        // leader.
        Some((event_loop, _)) => {
            event_loop.handle().led_by(clocks.thread());
            lead_again(lead, event_loop);
            Conduct::Blocked
        }
        None => Conduct::Blocked,
    };
    (result, conduct)
}

#[inline(always)]
fn lead_again(lead: &mut Option<Box<EventLoop>>, event_loop: Box<EventLoop>) {
    if let Some(other) = lead.replace(event_loop) {
        free_other(other);
    }
}

/// Begins to measure a call that a loop is about to be lent for, and notes who else wants the loop.
#[cold]
fn begin_look(event_loop: &mut EventLoop, clocks: &Clocks, route: Route) -> (Probe, Others) {
    let look = event_loop.route_mut(route.key).look();
    (clocks.begin(look), event_loop.others())
}

#[inline(always)]
fn run_following(
    clocks: &mut Clocks,
    engine: &Engine,
    route: Route,
    code: impl FnOnce(),
) -> (thread::Result<()>, Conduct) {
    let is_due = clocks.is_due();
    let probe = clocks.begin_on_pool(is_due);
    let result = catch_unwind(AssertUnwindSafe(code));
    let took = clocks.end_on_pool(&probe);
    let is_back = if is_due {
        engine.crowd.add_busy(took.wall * CALLS_PER_CLOSE_LOOK);
        engine.routes.looked_on_pool(route.key, took, u64::from(CALLS_PER_CLOSE_LOOK))
    } else {
        engine.routes.ran_on_pool(route.key, took)
    };
    engine.count_move(is_back.then_some(Place::Loop));
    (result, if took.wall > BLOCKED_MIN { Conduct::Blocked } else { Conduct::Quick })
}
