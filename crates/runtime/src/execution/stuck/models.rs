//! Models of a slot and of the detector's sleep under loom: every interleaving. `README.md` in the
//! folder above says how to run them.

use std::sync::Arc;

use super::slot::{Fate, ThreadSlot};
use crate::execution::key::RouteId;
use crate::execution::sleep::WatchdogSleep;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::thread;

fn route(call: u64) -> RouteId {
    RouteId::from_bits(call << 32)
}

/// The detector looks at a thread whose calls follow each other. What it has read belongs to the
/// call that it claims, and the thread learns of the claim at the end of that call, not of another.
#[test]
fn a_claimed_call_is_the_one_that_was_read() {
    loom::model(|| {
        let slot = Arc::new(ThreadSlot::new(1, None));
        // Stands for all that the detector reads of the thread, such as its request's ID.
        let seen_of_thread = Arc::new(AtomicU64::new(0));
        let detector = thread::spawn({
            let (slot, of_thread) = (Arc::clone(&slot), Arc::clone(&seen_of_thread));
            move || {
                let seen = slot.running()?;
                let other = of_thread.load(Ordering::Relaxed);
                slot.claim(seen)?;
                assert_eq!(seen.route, route(seen.since_ns), "one call wrote both");
                assert!(other <= seen.since_ns, "a later call was read");
                Some(seen.since_ns)
            }
        });
        let mut reported = None;
        for call in 1..=2 {
            assert!(slot.begin(route(call), call));
            seen_of_thread.store(call, Ordering::Relaxed);
            if let Fate::Reported(_) = slot.end() {
                reported = Some(call);
            }
        }
        assert_eq!(detector.join().unwrap(), reported);
    });
}

/// Somebody lists the calls of a thread while they follow each other. What was read belongs to the
/// call that is listed.
#[test]
fn a_listed_call_is_the_one_that_was_read() {
    loom::model(|| {
        let slot = Arc::new(ThreadSlot::new(1, None));
        // Stands for all that is read of the thread.
        let seen_of_thread = Arc::new(AtomicU64::new(0));
        let lister = thread::spawn({
            let (slot, of_thread) = (Arc::clone(&slot), Arc::clone(&seen_of_thread));
            move || {
                let Some(seen) = slot.current() else { return };
                let other = of_thread.load(Ordering::Relaxed);
                if slot.still_runs(seen) {
                    assert_eq!(seen.route, route(seen.since_ns), "one call wrote both");
                    assert!(other <= seen.since_ns, "a later call was read");
                }
            }
        });
        for call in 1..=2 {
            assert!(slot.begin(route(call), call));
            seen_of_thread.store(call, Ordering::Relaxed);
            assert_eq!(slot.end(), Fate::Unnoticed, "a list is no report");
        }
        lister.join().unwrap();
    });
}

/// Somebody lists a call while the detector claims it and its thread ends it.
#[test]
fn a_list_loses_no_claim() {
    loom::model(|| {
        let slot = Arc::new(ThreadSlot::new(1, None));
        assert!(slot.begin(route(1), 1));
        let seen = slot.current().unwrap();
        let detector = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.claim(seen)
        });
        let lister = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.still_runs(seen)
        });
        let fate = slot.end();
        let claimed = detector.join().unwrap();
        assert_eq!(claimed.map_or(Fate::Unnoticed, Fate::Reported), fate);
        lister.join().unwrap();
        assert!(!slot.still_runs(seen));
    });
}

/// A call begins while the detector parks. The detector sees it, or is woken.
#[test]
fn the_detector_parks_and_a_call_begins() {
    loom::model(|| {
        let slot = Arc::new(ThreadSlot::new(1, None));
        let sleep = Arc::new(WatchdogSleep::new());
        let detector = thread::spawn({
            let (slot, sleep) = (Arc::clone(&slot), Arc::clone(&sleep));
            move || {
                sleep.enter();
                // Without a wake-up this is a deadlock.
                while slot.running().is_none() {
                    sleep.park(|| slot.running().is_none());
                }
            }
        });
        assert!(slot.begin(route(1), 1));
        // As `Calls::begin` does.
        fence(Ordering::SeqCst);
        sleep.wake();
        detector.join().unwrap();
    });
}
