//! A queue of bytes on one thread.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::budget::memory::Memory;
use crate::execution::probe;

const PATIENCE: Duration = Duration::from_secs(30);

fn part(text: &'static str) -> Part {
    Part::from(Bytes::from_static(text.as_bytes()))
}

fn keyed(key: u64, text: &'static str) -> Part {
    Part::keyed(key, Bytes::from_static(text.as_bytes()))
}

/// Takes up to `bytes_max` bytes. Returns them, with their number in front, as text.
fn take(queue: &SendQueue, bytes_max: usize) -> (String, Rest) {
    let mut output = Vec::new();
    let (taken, rest) = queue.take_framed(bytes_max, &mut output, |bytes, output| {
        output.extend_from_slice(format!("{bytes}:").as_bytes());
    });
    assert_eq!(taken > 0, !output.is_empty());
    (String::from_utf8(output).unwrap(), rest)
}

#[test]
fn one_notification_covers_everything_until_it_is_taken() {
    let queue = SendQueue::new(100);
    assert_eq!(queue.put(part("one"), None), Ok(true));
    assert_eq!(queue.put(part("two"), None), Ok(false));
    assert_eq!(queue.put(part(""), None), Ok(false));
    let (bytes, rest) = take(&queue, 4);
    assert_eq!(bytes, "4:onet");
    assert!(matches!(rest, Rest::Some));
    assert_eq!(queue.put(part("three"), None), Ok(false), "the owner takes the rest anyway");
    let (bytes, rest) = take(&queue, 100);
    assert_eq!(bytes, "7:wothree");
    assert!(matches!(rest, Rest::Nothing));
    assert_eq!(queue.put(part("four"), None), Ok(true));
}

#[test]
fn bytes_beyond_the_bound_are_refused_unless_nothing_else_waits() {
    let queue = SendQueue::new(4);
    assert_eq!(queue.put(part("longer than the bound"), None), Ok(true));
    assert_eq!(queue.put(part("x"), None), Err(Refused::Full));
    let deadline = Some(Instant::now());
    assert_eq!(queue.put(part("x"), deadline), Err(Refused::Full), "after the deadline");
    take(&queue, 100);
    assert_eq!(queue.put(part("1234"), None), Ok(true));
    assert_eq!(queue.put(part("5"), None), Err(Refused::Full));
    assert_eq!(queue.check(), Ok(()), "a full queue is open");
}

#[test]
fn a_part_replaces_the_waiting_part_of_its_key_in_its_place() {
    let queue = SendQueue::new(6);
    for (key, text) in [(1, "a1"), (2, "b1"), (1, "a22"), (1, "a3")] {
        queue.put(keyed(key, text), None).unwrap();
    }
    assert_eq!(queue.waiting(), 4);
    assert_eq!(queue.put(keyed(1, "a4444"), None), Err(Refused::Full), "with the other part");
    let (bytes, _) = take(&queue, 1);
    assert_eq!(bytes, "1:a");
    queue.put(keyed(1, "A"), None).unwrap();
    let (bytes, _) = take(&queue, 100);
    assert_eq!(bytes, "4:3b1A", "a part whose beginning is sent is not replaced");
}

#[test]
fn bytes_behind_an_end_are_refused_with_its_reason() {
    type Row = (fn(&SendQueue), Refused);
    let rows: [Row; 5] = [
        (|queue| assert!(queue.end(End::Finished(None))), Refused::Ended),
        (|queue| assert!(queue.end(End::Failed(io::Error::other("it")))), Refused::Ended),
        (|queue| queue.stop(true), Refused::Stopping),
        (SendQueue::close, Refused::Gone),
        (|queue| assert!(!queue.take_last(&mut Vec::new())), Refused::Gone),
    ];
    for (end, refused) in rows {
        let queue = SendQueue::new(100);
        end(&queue);
        assert_eq!(queue.put(part("x"), None), Err(refused));
        take(&queue, 100);
        assert_eq!(queue.check(), Err(refused), "also after the end was taken");
        queue.close();
        assert_eq!(queue.check(), Err(refused), "also when the connection is closed");
    }
    let queue = SendQueue::new(100);
    queue.stop(false);
    assert_eq!((queue.check(), queue.is_stopping()), (Ok(()), true));
}

/// What a part takes in addition to its bytes.
const PLACE: usize = size_of::<Part>();

#[test]
fn what_waits_is_charged_only_while_the_peer_does_not_take_what_it_is_sent() {
    let memory = Memory::new(Some(100_000));
    let account = Account::new(&memory, None);
    let queue = SendQueue::new(1000);
    queue.put(part("before"), None).unwrap();
    queue.set_elsewhere(500).unwrap();
    assert_eq!(memory.used(), 0);
    queue.stall(&account);
    assert_eq!(memory.used(), PLACE + 6, "what was queued before counts as well");
    queue.put(part("later"), None).unwrap();
    queue.set_elsewhere(500).unwrap();
    queue.set_elsewhere(600).unwrap();
    assert_eq!(memory.used(), 2 * PLACE + 611, "the new number replaces the old one");
    queue.stall(&account);
    assert_eq!(memory.used(), 2 * PLACE + 611, "nothing is counted twice");
    let (bytes, _) = take(&queue, 8);
    assert_eq!((bytes.as_str(), memory.used()), ("8:beforela", 0));
    queue.put(part("again"), None).unwrap();
    assert_eq!(memory.used(), 0);
    queue.stall(&account);
    assert_eq!(memory.used(), 2 * PLACE + 8, "the other queue was emptied");
    queue.close();
    queue.stall(&account);
    queue.set_elsewhere(500).unwrap();
    assert_eq!(memory.used(), 0, "nothing waits for a connection that is closed");
}

#[test]
fn a_part_that_is_replaced_is_not_charged_any_more() {
    let memory = Memory::new(Some(100_000));
    let account = Account::new(&memory, None);
    let queue = SendQueue::new(1000);
    queue.stall(&account);
    for text in ["long enough", "short", "short"] {
        queue.put(keyed(1, text), None).unwrap();
    }
    assert_eq!(memory.used(), PLACE + 5);
}

#[test]
fn bytes_beyond_the_budget_are_refused_until_the_peer_reads() {
    let memory = Memory::new(Some(PLACE + 10));
    let account = Account::new(&memory, None);
    let queue = SendQueue::new(1000);
    queue.stall(&account);
    queue.put(part("12345"), None).unwrap();
    assert_eq!(queue.put(part("6789"), None), Err(Refused::OutOfMemory));
    assert_eq!(queue.set_elsewhere(6), Err(Refused::OutOfMemory));
    assert_eq!(queue.set_elsewhere(5), Ok(()));
    assert_eq!(memory.used(), PLACE + 10, "what was refused is not counted");
    let deadline = Some(Instant::now());
    assert_eq!(queue.put(part("6789"), deadline), Err(Refused::OutOfMemory), "after the deadline");
    // A sender that waits continues when everything before is taken, even if none of that was in
    // this queue.
    let deadline = Some(Instant::now() + Duration::from_secs(30));
    let waits = thread::scope(|scope| {
        let waits = scope.spawn(|| queue.put(part("6789"), deadline));
        while !waits.is_finished() {
            take(&queue, 100);
        }
        waits.join().unwrap()
    });
    assert!(waits.is_ok());
}

#[test]
fn only_a_failure_replaces_an_end() {
    let queue = SendQueue::new(100);
    assert!(queue.end(End::Finished(None)));
    queue.stop(true);
    assert_eq!(queue.check(), Err(Refused::Ended), "it had ended before the server stopped");
    queue.end(End::Failed(io::Error::other("as planned")));
    let rest = queue.take_framed(100, &mut Vec::new(), |_, _| {}).1;
    assert!(matches!(rest, Rest::End(End::Failed(_))), "{rest:?}");
}

#[test]
fn nothing_needs_no_notification() {
    let queue = SendQueue::new(100);
    assert_eq!(queue.put(Bytes::new().into(), None), Ok(false));
    assert_eq!(queue.put(Bytes::from("a").into(), None), Ok(true));
}

/// Waits for room on another thread, and calls `wake` when that thread sleeps. Returns what its
/// bytes met. If the system does not say what a thread does, it may not sleep yet, and the tests
/// notice less.
#[track_caller]
fn woken_by(queue: &SendQueue, wake: impl FnOnce()) -> Result<bool, Refused> {
    thread::scope(|scope| {
        let (sender, thread) = mpsc::channel();
        let (result, results) = mpsc::channel();
        scope.spawn(move || {
            sender.send(probe::thread_number()).unwrap();
            let deadline = Instant::now() + 2 * PATIENCE;
            let _ = result.send(queue.put(part("later"), Some(deadline)));
        });
        let thread = thread.recv().unwrap();
        while probe::is_at_work(thread) == Some(true) {
            thread::yield_now();
        }
        wake();
        results.recv_timeout(PATIENCE).expect("the sender is woken")
    })
}

#[test]
fn a_sender_that_waits_for_room_is_woken_by_the_end() {
    let full = || {
        let queue = SendQueue::new(1);
        queue.put(part("first"), None).unwrap();
        queue
    };
    let queue = full();
    assert_eq!(woken_by(&queue, || assert!(!queue.end(End::Finished(None)))), Err(Refused::Ended));
    let queue = full();
    assert_eq!(woken_by(&queue, || queue.close()), Err(Refused::Gone));
}

/// Nothing of this queue was taken, but the memory of the protocol's own queue is free.
#[test]
fn a_sender_that_waits_for_memory_is_woken_when_the_peer_has_taken_all() {
    type Take = fn(&SendQueue);
    let rows: [Take; 2] = [
        |queue| assert!(!queue.take(&mut Vec::new())),
        |queue| assert!(take(queue, 100).0.is_empty()),
    ];
    for take in rows {
        let memory = Memory::new(Some(PLACE + 10));
        let queue = SendQueue::new(1000);
        queue.stall(&Account::new(&memory, None));
        queue.set_elsewhere(PLACE + 10).unwrap();
        assert_eq!(queue.put(part("now"), None), Err(Refused::OutOfMemory));
        assert_eq!(woken_by(&queue, || take(&queue)), Ok(true));
    }
}

/// An owner that takes the bytes within the notification.
struct Owner {
    mailbox: Mailbox,
    /// For each notification, whether somebody wanted it to be called.
    calls: Mutex<Vec<bool>>,
}

impl WakeConnection for Owner {
    fn wake_connection(&self, _: usize) {
        self.mailbox.queue.take(&mut Vec::new());
        self.calls.lock().push(self.mailbox.take_call());
    }
}

#[test]
fn each_request_for_a_call_reaches_an_owner_that_is_quick() {
    let owner = Arc::new(Owner { mailbox: Mailbox::new(100), calls: Mutex::default() });
    let event_loop: Arc<dyn WakeConnection> = Arc::<Owner>::clone(&owner);
    owner.mailbox.attach(Arc::downgrade(&event_loop), 7);
    owner.mailbox.call_owner();
    owner.mailbox.call_owner();
    owner.mailbox.wake_if(owner.mailbox.queue.put(part("bytes"), None).unwrap());
    assert_eq!(*owner.calls.lock(), [true, true, false]);
    owner.mailbox.queue.close();
    owner.mailbox.call_owner();
    assert_eq!(owner.calls.lock().len(), 3, "a closed connection has nothing to do");
}

/// A program's buffer, which asks the queue how much waits when it is dropped.
struct Asks(Arc<SendQueue>);

impl AsRef<[u8]> for Asks {
    fn as_ref(&self) -> &[u8] {
        b"some"
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        let _ = self.0.check();
    }
}

#[test]
fn buffers_are_dropped_without_the_lock() {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let queue = Arc::new(SendQueue::new(100));
        let buffer = || Bytes::from_owner(Asks(Arc::clone(&queue)));
        for taken in [4, 6, 100] {
            queue.put(Part::from(buffer()), None).unwrap();
            // The second one replaces the first one.
            queue.put(Part::keyed(1, buffer()), None).unwrap();
            queue.put(Part::keyed(1, buffer()), None).unwrap();
            queue.take_framed(taken, &mut Vec::new(), |_, _| ());
            queue.take(&mut Vec::new());
        }
        tell.send(()).unwrap();
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
}
