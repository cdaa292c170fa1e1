//! What wakes loops that sleep.

use std::sync::mpsc;

use super::*;
use crate::budget::account::Charge;
use crate::budget::permits::PermitWaiter;
use crate::engine::seat::Seat;
use crate::engine::task::Task;
use crate::execution::key::{ExecutionKey, RouteId};

const MEMORY: usize = 1 << 20;

/// Returns event loops, and a function that returns which of them were woken since its last call.
fn sleeping() -> (Arc<Engine>, impl FnMut() -> [bool; 2]) {
    let [mut one, mut other] = event_loops(config().memory_max(MEMORY).threads_max(1));
    let engine = Arc::clone(&one.handle.engine);
    (engine, move || [was_woken(&mut one), was_woken(&mut other)])
}

#[test]
fn sleeping_loops_are_woken_when_memory_becomes_short_and_not_while_it_is() {
    let (engine, mut woken) = sleeping();
    let (account, mut charge) = (engine.account(None), Charge::default());
    let mut woken_by = |bytes| {
        charge.set(&account, bytes);
        woken()
    };
    assert_eq!(woken_by(MEMORY / 2 - 1), [false; 2]);
    assert_eq!(woken_by(MEMORY / 2), [true; 2]);
    assert_eq!(woken_by(MEMORY), [false; 2]);
    assert_eq!(woken_by(0), [false; 2]);
    assert_eq!(woken_by(MEMORY), [true; 2], "it is another shortage");
}

#[cfg(feature = "spool")]
#[test]
fn sleeping_loops_are_woken_when_disk_space_becomes_short_and_not_while_it_is() {
    let (engine, mut woken) = sleeping();
    let mut woken_by = |is_short| {
        engine.memory.set_disk_short(is_short);
        woken()
    };
    assert_eq!(woken_by(true), [true; 2]);
    assert_eq!(woken_by(true), [false; 2]);
    assert_eq!(woken_by(false), [false; 2]);
    assert_eq!(woken_by(true), [true; 2], "it is another shortage");
}

/// The thread that releases the permit may go on, and no worker may end for long.
#[test]
fn sleeping_loops_are_woken_if_a_task_waits_when_a_handler_has_released_a_permit() {
    let (engine, mut woken) = sleeping();
    let mut woken_by_permit = || {
        Arc::clone(&engine).permit_is_free_meanwhile();
        woken()
    };
    assert_eq!(woken_by_permit(), [false; 2], "no task waits");
    let (release, released) = mpsc::channel::<()>();
    let submit = |run: Box<dyn FnOnce() + Send>| {
        let seat = Seat::force(&engine, ExecutionKey::at(1), None);
        engine.pool.submit(Task::Detached(run, RouteId::from_bits(0), seat)).unwrap();
    };
    submit(Box::new(move || _ = released.recv()));
    submit(Box::new(|| {}));
    assert_eq!(woken_by_permit(), [true; 2]);
    drop(release);
}
