//! Every interleaving of how a loop changes hands and how its threads go to sleep.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_LTO=off cargo test -p filoplume-runtime --lib models --release`
//!
//! The slot, [`Doze`] and [`Standby`] are the real ones. The poller is a flag and a condition
//! variable, and a message is an atomic with the weakest order that a channel could have. A wake-up
//! that is lost is a deadlock, and two that have the loop in hand are a race on its [`Cell`]; loom
//! reports both.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Count;
use std::time::Instant;

use bytes::Bytes;
use loom::cell::Cell;

use super::doze::{Doze, FOR_EVER, Standby};
use super::slot::Slot;
use crate::service::tcp::SendQueue;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, thread};

#[allow(clippy::print_stdout, reason = "`--nocapture` shows how far a model has walked")]
fn explore(name: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let interleavings = Arc::new(Count::new(0));
    let counter = Arc::clone(&interleavings);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{name}: {} interleavings", interleavings.load(Ordering::Relaxed));
}

/// What lies in the slot: a loop, as far as its leaders' bookkeeping goes.
struct Led {
    /// The call that runs, or ran last.
    running: Cell<u64>,
}

impl Led {
    fn new() -> Box<Self> {
        Box::new(Self { running: Cell::new(0) })
    }

    /// Only who has the loop in hand may do this; loom sees when two do.
    fn begin_call(&self) -> u64 {
        let call = self.running.get() + 1;
        self.running.set(call);
        call
    }
}

#[test]
fn a_leader_and_the_watchdog() {
    explore("a leader and the watchdog", None, || {
        let slot = Arc::new(Slot::<Led>::new());
        let watchdog = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.take().inspect(|(led, _)| _ = led.begin_call()).is_some()
        });
        let led = Led::new();
        led.begin_call();
        slot.lend(led);
        let returned = slot.take().inspect(|(led, _)| _ = led.begin_call()).is_some();
        let taken = watchdog.join().unwrap();
        assert_ne!(taken, returned, "one of them has it, and only one");
        assert_eq!(slot.turn(), 2);
        assert!(slot.take().is_none(), "and the slot has not");
    });
}

/// The watchdog marks the route of the call that it saw twice, not of one that began since.
#[test]
fn the_watchdog_marks_the_call_that_it_saw() {
    explore("the call that was seen twice", None, || {
        let slot = Arc::new(Slot::<Led>::new());
        let watchdog = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                let first = slot.turn();
                let second = slot.turn();
                if second % 2 == 0 || second != first {
                    return;
                }
                let Some((led, turn)) = slot.take() else { return };
                if turn == second {
                    assert_eq!(
                        led.running.get(),
                        second.div_ceil(2),
                        "the call has the number of its turn"
                    );
                }
            }
        });
        let mut lead = Some(Led::new());
        for _ in 0..3 {
            let Some(led) = lead.take() else { break };
            led.begin_call();
            slot.lend(led);
            lead = slot.take().map(|(led, _)| led);
        }
        watchdog.join().unwrap();
    });
}

/// The late one comes back while the new leader's own handler runs.
#[test]
fn a_late_leader_and_the_new_one() {
    explore("a late leader and the new one", None, || {
        let slot = Arc::new(Slot::<Led>::new());
        let new = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                let Some((led, _)) = slot.take() else { return false };
                led.begin_call();
                slot.lend(led);
                slot.take().inspect(|(led, _)| _ = led.begin_call()).is_some()
            }
        });
        let led = Led::new();
        led.begin_call();
        let turn = slot.lend(led);
        let late = slot.take().inspect(|(led, taken_turn)| {
            let is_mine = led.begin_call() == 2;
            assert_eq!(
                *taken_turn == turn,
                is_mine,
                "the turn tells whether others have had the loop"
            );
        });
        let late = late.is_some();
        let new = new.join().unwrap();
        assert_ne!(late, new, "one leads, and only one");
        assert!(slot.take().is_none());
    });
}

/// A poller as a leader knows it: it blocks until it is told, and what it is told it tells once.
struct Poller {
    is_told: Mutex<bool>,
    changed: Condvar,
}

impl Poller {
    fn new() -> Self {
        Self { is_told: Mutex::new(false), changed: Condvar::new() }
    }

    fn wake(&self) {
        *self.is_told.lock() = true;
        self.changed.notify_all();
    }

    fn poll(&self) {
        let mut is_told = self.is_told.lock();
        while !*is_told {
            (is_told, _) = self.changed.wait_until(is_told, Instant::now());
        }
        *is_told = false;
    }
}

/// The side of a loop that all threads see, as far as its sleep is concerned.
struct Loop {
    doze: Doze,
    poller: Poller,
    is_draining: AtomicBool,
    standby: Standby,
}

impl Loop {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            doze: Doze::new(),
            poller: Poller::new(),
            is_draining: AtomicBool::new(false),
            standby: Standby::new(),
        })
    }

    fn wait(&self, has_work: impl Fn() -> bool) {
        self.wait_until(FOR_EVER, has_work);
    }

    fn wait_until(&self, until: u64, has_work: impl Fn() -> bool) {
        let poll = |has_work: bool| {
            if !has_work {
                self.poller.poll();
            }
        };
        self.doze.sleep(until, has_work, poll, || self.standby.wake());
    }
}

#[test]
fn a_message_and_a_leader_that_falls_asleep() {
    explore("a message and a leader that falls asleep", Some(3), || {
        let handle = Loop::new();
        let inbox = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let senders = [0, 1].map(|sender| {
            let (handle, inbox) = (Arc::clone(&handle), Arc::clone(&inbox));
            thread::spawn(move || {
                inbox[sender].store(true, Ordering::Release);
                if handle.doze.needs_waking() {
                    handle.poller.wake();
                }
            })
        });
        let mut received = [false; 2];
        while received != [true; 2] {
            // A message that was received is no longer in the inbox.
            let is_new = |index: usize| !received[index] && inbox[index].load(Ordering::Acquire);
            let new = [is_new(0), is_new(1)];
            if new == [false; 2] {
                handle.wait(|| is_new(0) || is_new(1));
            } else {
                received = [received[0] || new[0], received[1] || new[1]];
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// A follower that sends one connection home, as `LoopHandle::send_back` does. Returns where it
/// arrives, and the follower.
fn send_back(handle: &Arc<Loop>, deadline: u64) -> (Arc<AtomicBool>, thread::JoinHandle<()>) {
    let inbox = Arc::new(AtomicBool::new(false));
    let follower = thread::spawn({
        let (handle, inbox) = (Arc::clone(handle), Arc::clone(&inbox));
        move || {
            inbox.store(true, Ordering::Release);
            if handle.doze.needs_waking_before(deadline) {
                handle.poller.wake();
            }
        }
    });
    (inbox, follower)
}

/// A connection comes back while the leader falls asleep. Its peer moved meanwhile, and the poller
/// does not say so twice: the leader must see it come, whether it was told before it looks at the
/// inbox or afterwards.
#[test]
fn a_connection_that_comes_back_and_a_leader_that_falls_asleep() {
    explore("a connection that comes back and a leader that falls asleep", None, || {
        let handle = Loop::new();
        // Its deadline is later than anything that the leader waits for.
        let (inbox, follower) = send_back(&handle, FOR_EVER - 1);
        // The first time the leader sleeps it knows of nothing, and is told of the peer; from then
        // on something was missed.
        handle.poller.wake();
        let is_back = || inbox.load(Ordering::Acquire);
        handle.wait_until(1000, is_back);
        while !is_back() {
            handle.wait_until(FOR_EVER, is_back);
        }
        follower.join().unwrap();
    });
}

/// The deadline of a connection that comes back is before everything else that would wake the
/// leader.
#[test]
fn a_connection_with_an_early_deadline_and_a_leader_that_falls_asleep() {
    explore("a connection with an early deadline and a leader that falls asleep", None, || {
        let handle = Loop::new();
        let (inbox, follower) = send_back(&handle, 999);
        let is_back = || inbox.load(Ordering::Acquire);
        while !is_back() {
            handle.wait_until(1000, is_back);
        }
        follower.join().unwrap();
    });
}

/// The loop is told of the first bytes only, until somebody looks: none waits for ever for the next
/// one.
#[test]
fn bytes_for_a_connection_and_a_leader_that_falls_asleep() {
    explore("bytes for a connection and a leader that falls asleep", Some(3), || {
        let handle = Loop::new();
        let queue = Arc::new(SendQueue::new());
        // Messages, in the order in which they are sent.
        let inbox = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let sender = thread::spawn({
            let (handle, queue, inbox) =
                (Arc::clone(&handle), Arc::clone(&queue), Arc::clone(&inbox));
            move || {
                let mut messages = inbox.iter();
                for _ in 0..2 {
                    if queue.put(Bytes::from_static(b"x")).unwrap() {
                        messages.next().unwrap().store(true, Ordering::Release);
                        if handle.doze.needs_waking() {
                            handle.poller.wake();
                        }
                    }
                }
            }
        });
        let mut received = Vec::new();
        let mut messages = 0;
        while received.len() < 2 {
            let is_new = || inbox[messages].load(Ordering::Acquire);
            if is_new() {
                messages += 1;
                assert!(!queue.take(&mut received), "it is open");
            } else {
                handle.wait(is_new);
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_shutdown_and_a_leader_that_falls_asleep() {
    explore("a shutdown and a leader that falls asleep", None, || {
        let handle = Loop::new();
        let shutdown = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.is_draining.swap(true, Ordering::SeqCst);
                handle.poller.wake();
            }
        });
        // As the engine does, the leader looks at the flag only around its sleep.
        let is_draining = || handle.is_draining.load(Ordering::Relaxed);
        handle.wait(is_draining);
        assert!(is_draining(), "a leader that nothing else wakes wakes for this");
        shutdown.join().unwrap();
    });
}

/// A leader that wakes up is looked at, as often as it does.
#[test]
fn the_watchdog_parks_and_a_leader_wakes() {
    explore("the watchdog parks and a leader wakes", None, || {
        let handle = Loop::new();
        let looked = Arc::new(Poller::new());
        handle.doze.fall_asleep(FOR_EVER);
        let watchdog = thread::spawn({
            let (handle, looked) = (Arc::clone(&handle), Arc::clone(&looked));
            move || {
                handle.standby.enter();
                for _ in 0..2 {
                    handle.standby.park(|| handle.doze.is_asleep());
                    looked.wake();
                    handle.poller.poll();
                }
            }
        });
        for _ in 0..2 {
            handle.doze.wake_up();
            handle.standby.wake();
            looked.poll();
            handle.doze.fall_asleep(FOR_EVER);
            handle.poller.wake();
        }
        watchdog.join().unwrap();
    });
}

#[test]
fn the_watchdog_parks_and_two_leaders_wake() {
    explore("the watchdog parks and two leaders wake", Some(4), || {
        let standby = Arc::new(Standby::new());
        let dozes = Arc::new([Doze::new(), Doze::new()]);
        let looked = Arc::new([Poller::new(), Poller::new()]);
        for doze in dozes.iter() {
            doze.fall_asleep(FOR_EVER);
        }
        let leaders = [0, 1].map(|leader| {
            let (standby, dozes, looked) =
                (Arc::clone(&standby), Arc::clone(&dozes), Arc::clone(&looked));
            thread::spawn(move || {
                dozes[leader].wake_up();
                standby.wake();
                looked[leader].poll();
            })
        });
        standby.enter();
        standby.park(|| dozes.iter().all(Doze::is_asleep));
        for looked in looked.iter() {
            looked.wake();
        }
        for leader in leaders {
            leader.join().unwrap();
        }
    });
}

#[test]
fn the_watchdog_parks_and_is_stopped() {
    explore("the watchdog parks and is stopped", None, || {
        let handle = Loop::new();
        handle.doze.fall_asleep(FOR_EVER);
        let watchdog = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.standby.enter();
                while !handle.standby.is_stopped() {
                    handle.standby.park(|| handle.doze.is_asleep());
                }
            }
        });
        handle.standby.stop();
        watchdog.join().unwrap();
    });
}

#[test]
fn the_watchdog_is_stopped_while_a_leader_wakes() {
    explore("the watchdog is stopped while a leader wakes", Some(5), || {
        let handle = Loop::new();
        handle.doze.fall_asleep(FOR_EVER);
        let watchdog = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.standby.enter();
                // Twice: the wake-up of the leader may be used up by the first.
                for _ in 0..2 {
                    handle.standby.park(|| handle.doze.is_asleep());
                }
            }
        });
        let leader = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.doze.wake_up();
                handle.standby.wake();
                handle.doze.fall_asleep(FOR_EVER);
            }
        });
        handle.standby.stop();
        watchdog.join().unwrap();
        leader.join().unwrap();
    });
}
