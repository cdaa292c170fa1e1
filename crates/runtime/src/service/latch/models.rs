//! Models of a latch under loom: every interleaving of registering, setting, sealing and removing.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//!     CARGO_PROFILE_RELEASE_LTO=off cargo test -p filoplume-runtime --lib models --release
//! ```

use std::sync::Arc;
use std::time::Instant;

use super::{Latch, Registered, Set};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn set(latch: &Latch) {
    if latch.set() == Set::WithCallbacks {
        latch.run_callbacks();
    }
}

#[test]
fn a_callback_that_is_registered_while_the_latch_is_set_runs_once() {
    explore(|| {
        let latch = Arc::new(Latch::new());
        let calls = Arc::new(AtomicUsize::new(0));
        let setter = thread::spawn({
            let latch = Arc::clone(&latch);
            move || set(&latch)
        });
        let registered = latch.register({
            let calls = Arc::clone(&calls);
            move || _ = calls.fetch_add(1, Ordering::Relaxed)
        });
        if let Registered::Waiting(registration) = registered {
            registration.keep();
        }
        setter.join().unwrap();
        assert!(latch.is_set());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn no_callback_begins_after_the_latch_was_sealed() {
    explore(|| {
        let latch = Arc::new(Latch::new());
        let is_sealed = Arc::new(AtomicBool::new(false));
        let registered = latch.register({
            let is_sealed = Arc::clone(&is_sealed);
            move || assert!(!is_sealed.load(Ordering::Relaxed), "the handler has returned")
        });
        let setter = thread::spawn({
            let latch = Arc::clone(&latch);
            move || {
                if latch.set() == Set::WithCallbacks {
                    assert_eq!(latch.run_callbacks(), 0)
                }
            }
        });
        // As a handler does: its guard is dropped, then it returns.
        drop(registered);
        latch.seal();
        is_sealed.store(true, Ordering::Relaxed);
        setter.join().unwrap();
    });
}

#[test]
fn a_removed_callback_is_not_running_any_more() {
    explore(|| {
        let latch = Arc::new(Latch::new());
        let is_running = Arc::new(AtomicBool::new(false));
        let registered = latch.register({
            let is_running = Arc::clone(&is_running);
            move || {
                is_running.store(true, Ordering::Relaxed);
                thread::yield_now();
                is_running.store(false, Ordering::Relaxed);
            }
        });
        let setter = thread::spawn({
            let latch = Arc::clone(&latch);
            move || set(&latch)
        });
        drop(registered);
        assert!(!is_running.load(Ordering::Relaxed));
        setter.join().unwrap();
    });
}

#[test]
fn a_thread_that_waits_is_woken() {
    explore(|| {
        let latch = Arc::new(Latch::new());
        let setter = thread::spawn({
            let latch = Arc::clone(&latch);
            move || set(&latch)
        });
        assert!(latch.wait_until(Instant::now()), "a deadline never passes in a model");
        setter.join().unwrap();
    });
}
