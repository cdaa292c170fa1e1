//! Models of the hand-over of a loop and of the sleep of its threads under loom: every
//! interleaving.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//!     CARGO_PROFILE_RELEASE_LTO=off cargo test -p filoplume-runtime --lib models --release
//! ```
//!
//! The slot, [`LeaderSleep`] and [`WatchdogSleep`] are the real types. The poller is a flag and a
//! condition variable, and a message is an atomic with the weakest ordering that a channel could
//! have. A lost wake-up is a deadlock, and two owners of the loop are a race on its [`Cell`]. Loom
//! reports both.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Count;
use std::time::Instant;

use bytes::Bytes;
use loom::cell::Cell;

use super::sleep::{FOR_EVER, LeaderSleep, WatchdogSleep};
use super::slot::Slot;
use crate::service::mailbox::SendQueue;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, thread};

#[allow(clippy::print_stdout, reason = "`--nocapture` shows the number of interleavings")]
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

/// The value in the slot: a loop, reduced to the bookkeeping of its leaders.
struct Led {
    /// The call that runs, or ran last.
    running: Cell<u64>,
}

impl Led {
    fn new() -> Box<Self> {
        Box::new(Self { running: Cell::new(0) })
    }

    /// Only the owner of the loop may call this. Loom detects two owners.
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
        assert_ne!(taken, returned, "exactly one of them owns the loop");
        assert_eq!(slot.turn(), 2);
        assert!(slot.take().is_none(), "the slot is empty");
    });
}

/// The watchdog marks the route of the call that it saw twice, not of one that began afterwards.
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

/// The late leader returns while the new leader's own handler runs.
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
                "the turn tells whether others have owned the loop"
            );
        });
        let late = late.is_some();
        let new = new.join().unwrap();
        assert_ne!(late, new, "exactly one of them leads");
        assert!(slot.take().is_none());
    });
}

/// A poller as a leader sees it. It blocks until it is notified, and reports each notification
/// once.
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

/// The part of a loop that all threads see, as far as its sleep uses it.
struct Loop {
    sleep: LeaderSleep,
    poller: Poller,
    is_draining: AtomicBool,
    watchdog_sleep: WatchdogSleep,
}

impl Loop {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sleep: LeaderSleep::new(),
            poller: Poller::new(),
            is_draining: AtomicBool::new(false),
            watchdog_sleep: WatchdogSleep::new(),
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
        self.sleep.sleep(until, has_work, poll, || self.watchdog_sleep.wake());
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
                if handle.sleep.needs_waking() {
                    handle.poller.wake();
                }
            })
        });
        let mut received = [false; 2];
        while received != [true; 2] {
            // A received message is no longer in the inbox.
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

/// A follower that sends one connection back, as `LoopHandle::send_back` does. Returns the flag
/// that is set when it arrives, and the follower.
fn send_back(handle: &Arc<Loop>, deadline: u64) -> (Arc<AtomicBool>, thread::JoinHandle<()>) {
    let inbox = Arc::new(AtomicBool::new(false));
    let follower = thread::spawn({
        let (handle, inbox) = (Arc::clone(handle), Arc::clone(&inbox));
        move || {
            inbox.store(true, Ordering::Release);
            if handle.sleep.needs_waking_before(deadline) {
                handle.poller.wake();
            }
        }
    });
    (inbox, follower)
}

/// A connection comes back while the leader falls asleep. Its peer sent data meanwhile, and the
/// poller does not report that twice. The leader must see the connection arrive, whether the event
/// came before or after its check of the inbox.
#[test]
fn a_connection_that_comes_back_and_a_leader_that_falls_asleep() {
    explore("a connection that comes back and a leader that falls asleep", None, || {
        let handle = Loop::new();
        // Its deadline is later than anything else that the leader waits for.
        let (inbox, follower) = send_back(&handle, FOR_EVER - 1);
        // The leader first sleeps until a deadline of its own, and is woken by the peer's event.
        // After that it has missed an event, so connections that come back must wake it.
        handle.poller.wake();
        let is_back = || inbox.load(Ordering::Acquire);
        handle.wait_until(1000, is_back);
        while !is_back() {
            handle.wait_until(FOR_EVER, is_back);
        }
        follower.join().unwrap();
    });
}

/// The deadline of a connection that comes back is earlier than everything else that would wake the
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

/// The loop is notified of the first bytes only, until it takes them. No bytes may wait for ever
/// for the next ones.
#[test]
fn bytes_for_a_connection_and_a_leader_that_falls_asleep() {
    explore("bytes for a connection and a leader that falls asleep", Some(3), || {
        let handle = Loop::new();
        let queue = Arc::new(SendQueue::new(1024));
        // Messages in the order in which they are sent.
        let inbox = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let sender = thread::spawn({
            let (handle, queue, inbox) =
                (Arc::clone(&handle), Arc::clone(&queue), Arc::clone(&inbox));
            move || {
                let mut messages = inbox.iter();
                for _ in 0..2 {
                    if queue.put(Bytes::from_static(b"x").into(), None).unwrap() {
                        messages.next().unwrap().store(true, Ordering::Release);
                        if handle.sleep.needs_waking() {
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
                assert!(!queue.take(&mut received), "the queue is open");
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
        // Like the engine, the leader reads the flag only around its sleep.
        let is_draining = || handle.is_draining.load(Ordering::Relaxed);
        handle.wait(is_draining);
        assert!(is_draining(), "the shutdown wakes a leader that nothing else wakes");
        shutdown.join().unwrap();
    });
}

/// The watchdog sees every leader that wakes up, each time.
#[test]
fn the_watchdog_parks_and_a_leader_wakes() {
    explore("the watchdog parks and a leader wakes", None, || {
        let handle = Loop::new();
        let looked = Arc::new(Poller::new());
        handle.sleep.fall_asleep(FOR_EVER);
        let watchdog = thread::spawn({
            let (handle, looked) = (Arc::clone(&handle), Arc::clone(&looked));
            move || {
                handle.watchdog_sleep.enter();
                for _ in 0..2 {
                    handle.watchdog_sleep.park(|| handle.sleep.is_asleep());
                    looked.wake();
                    handle.poller.poll();
                }
            }
        });
        for _ in 0..2 {
            handle.sleep.wake_up();
            handle.watchdog_sleep.wake();
            looked.poll();
            handle.sleep.fall_asleep(FOR_EVER);
            handle.poller.wake();
        }
        watchdog.join().unwrap();
    });
}

#[test]
fn the_watchdog_parks_and_two_leaders_wake() {
    explore("the watchdog parks and two leaders wake", Some(4), || {
        let watchdog_sleep = Arc::new(WatchdogSleep::new());
        let sleeps = Arc::new([LeaderSleep::new(), LeaderSleep::new()]);
        let looked = Arc::new([Poller::new(), Poller::new()]);
        for sleep in sleeps.iter() {
            sleep.fall_asleep(FOR_EVER);
        }
        let leaders = [0, 1].map(|leader| {
            let (watchdog_sleep, sleeps, looked) =
                (Arc::clone(&watchdog_sleep), Arc::clone(&sleeps), Arc::clone(&looked));
            thread::spawn(move || {
                sleeps[leader].wake_up();
                watchdog_sleep.wake();
                looked[leader].poll();
            })
        });
        watchdog_sleep.enter();
        watchdog_sleep.park(|| sleeps.iter().all(LeaderSleep::is_asleep));
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
        handle.sleep.fall_asleep(FOR_EVER);
        let watchdog = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.watchdog_sleep.enter();
                while !handle.watchdog_sleep.is_stopped() {
                    handle.watchdog_sleep.park(|| handle.sleep.is_asleep());
                }
            }
        });
        handle.watchdog_sleep.stop();
        watchdog.join().unwrap();
    });
}

#[test]
fn the_watchdog_is_stopped_while_a_leader_wakes() {
    explore("the watchdog is stopped while a leader wakes", Some(5), || {
        let handle = Loop::new();
        handle.sleep.fall_asleep(FOR_EVER);
        let watchdog = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.watchdog_sleep.enter();
                // Twice, because the first may use up the wake-up of the leader.
                for _ in 0..2 {
                    handle.watchdog_sleep.park(|| handle.sleep.is_asleep());
                }
            }
        });
        let leader = thread::spawn({
            let handle = Arc::clone(&handle);
            move || {
                handle.sleep.wake_up();
                handle.watchdog_sleep.wake();
                handle.sleep.fall_asleep(FOR_EVER);
            }
        });
        handle.watchdog_sleep.stop();
        watchdog.join().unwrap();
        leader.join().unwrap();
    });
}
