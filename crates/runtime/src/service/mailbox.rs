//! The bytes that other threads have queued for a connection, and how its loop learns of them.
//!
//! A [`SendQueue`] knows no loop: each change returns whether the loop must be notified. One
//! notification covers everything that is queued until the owner of the connection takes it. A
//! [`Mailbox`] is a queue and the loop to notify.
//!
//! While the peer takes what it is sent, bytes pass through a queue within a turn of its loop, and
//! are not counted. If the socket does not take everything, the owner calls [`SendQueue::stall`]:
//! what waits is charged to the memory budget until the owner takes it.

mod part;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use bytes::Buf;
use filoplume_http1::Headers;

pub(crate) use self::part::Part;
use crate::budget::account::{Account, Charge};
use crate::sync::{Condvar, Mutex};

/// The event loop of a connection, as far as senders use it.
pub(crate) trait WakeConnection: Send + Sync {
    /// Wakes a connection as if its socket were ready. A token of a closed connection does no harm.
    fn wake_connection(&self, token: usize);
}

/// The queue of bytes for a connection. The thread that owns the connection takes them.
pub(crate) struct Mailbox {
    /// Not set until the connection is known. The thread that sets it takes what is queued after
    /// that, so nothing that was queued before is missed.
    target: OnceLock<Target>,
    pub(crate) queue: SendQueue,
    /// Whether another thread wants the owner to be called.
    is_called: AtomicBool,
}

struct Target {
    /// Weak, because a program may keep senders for longer than the server lives.
    event_loop: Weak<dyn WakeConnection>,
    token: usize,
}

impl Mailbox {
    /// Returns a mailbox without a connection, for at most about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            target: OnceLock::new(),
            queue: SendQueue::new(bytes_max),
            is_called: AtomicBool::new(false),
        }
    }

    /// Sets the connection. Only the first call counts.
    pub(crate) fn attach(&self, event_loop: Weak<dyn WakeConnection>, token: usize) {
        let _ = self.target.set(Target { event_loop, token });
    }

    /// Requests a call of the owner.
    pub(crate) fn call_owner(&self) {
        // The flag is set first, because the owner takes the bytes, which allows the next
        // notification, before it checks the flag.
        self.is_called.store(true, Ordering::Release);
        self.wake_if(self.queue.notify());
    }

    /// Returns whether the owner was requested to be called since the last time. The owner asks
    /// after it has taken the bytes.
    pub(crate) fn take_call(&self) -> bool {
        self.is_called.load(Ordering::Acquire) && self.is_called.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.target.get().is_some()
    }

    /// Wakes the connection, if `is_due`.
    pub(crate) fn wake_if(&self, is_due: bool) {
        if !is_due {
            return;
        }
        let Some(Target { event_loop, token }) = self.target.get() else { return };
        if let Some(event_loop) = event_loop.upgrade() {
            event_loop.wake_connection(*token);
        }
    }
}

/// The queued bytes.
pub(crate) struct SendQueue {
    queued: Mutex<Queued>,
    /// Notified when bytes are taken, and when the queue ends.
    room: Condvar,
    /// Whether the peer does not take what it is sent. Changes under the lock.
    is_stalled: AtomicBool,
}

/// How the bytes of a mailbox end. Bytes that are queued are sent first.
#[derive(Debug)]
pub(crate) enum End {
    /// Everything was sent. The fields are trailers.
    Finished(Option<Box<Headers>>),
    /// The server stops, and the bytes have no end of their own.
    Stopping,
    Failed(io::Error),
}

/// Why bytes are not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many bytes wait already.
    Full,
    /// The peer does not take what it is sent, and the memory budget is used up.
    OutOfMemory,
    /// A sender has ended the bytes.
    Ended,
    /// The server stops.
    Stopping,
    /// The connection is closed.
    Gone,
}

/// What remains in a queue after some bytes were taken.
#[derive(Debug)]
pub(crate) enum Rest {
    /// Nothing at the moment.
    Nothing,
    /// More bytes: the owner takes them next, without a notification.
    Some,
    /// Nothing will follow.
    End(End),
}

#[derive(Debug)]
struct Queued {
    parts: VecDeque<Part>,
    bytes: usize,
    bytes_max: usize,
    state: State,
    /// Whether the loop was notified and has not taken the bytes since.
    is_notified: bool,
    /// Whether the server stops.
    is_stopping: bool,
    /// Bytes for the same peer that its protocol keeps in a queue of its own. Known only while the
    /// peer does not take what it is sent.
    elsewhere: usize,
    /// The share of the memory budget. Counted while the peer does not take what it is sent.
    charge: Charge,
}

#[derive(Debug)]
enum State {
    Open,
    Ending(End),
    /// The owner has taken the end, or the connection is closed. Bytes are refused with this.
    Closed(Refused),
}

impl Refused {
    /// Returns whether the bytes may be accepted later.
    fn is_temporary(self) -> bool {
        matches!(self, Self::Full | Self::OutOfMemory)
    }
}

impl End {
    /// Returns why bytes after this end are refused.
    fn refusal(&self) -> Refused {
        match self {
            Self::Stopping => Refused::Stopping,
            Self::Finished(_) | Self::Failed(_) => Refused::Ended,
        }
    }
}

impl Queued {
    /// Returns why bytes are refused from now on.
    fn refusal(&self) -> Option<Refused> {
        match &self.state {
            State::Open => None,
            State::Ending(end) => Some(end.refusal()),
            State::Closed(refused) => Some(*refused),
        }
    }

    /// Returns whether these bytes may be queued, and charges them.
    fn admit(&mut self, part: &Part) -> Result<(), Refused> {
        if let Some(refused) = self.refusal() {
            return Err(refused);
        }
        // Bytes that are longer than the bound are accepted if nothing else is queued. Otherwise
        // they could never be sent.
        let replaced = self.same_key(part).map(|index| self.parts[index].bytes.len());
        let others = self.bytes - replaced.unwrap_or(0);
        if others > 0 && others + part.bytes.len() > self.bytes_max {
            return Err(Refused::Full);
        }
        let place = if replaced.is_some() { 0 } else { size_of::<Part>() };
        let cost = self.cost() - replaced.unwrap_or(0) + part.bytes.len() + place;
        if self.charge.try_set(cost) { Ok(()) } else { Err(Refused::OutOfMemory) }
    }

    /// Returns the memory that waits for the peer. Each part has a place of its own: many short
    /// ones take more than their bytes.
    fn cost(&self) -> usize {
        self.bytes + self.parts.len() * size_of::<Part>() + self.elsewhere
    }

    /// Returns the waiting part that this one replaces.
    fn same_key(&self, part: &Part) -> Option<usize> {
        let key = part.key?;
        self.parts.iter().position(|waiting| waiting.key == Some(key))
    }

    /// Returns the part that this one replaces.
    fn push(&mut self, part: Part) -> Option<Part> {
        self.bytes += part.bytes.len();
        let Some(index) = self.same_key(&part) else {
            self.parts.push_back(part);
            return None;
        };
        let replaced = mem::replace(&mut self.parts[index], part);
        self.bytes -= replaced.bytes.len();
        Some(replaced)
    }

    /// Takes the end, if it has come.
    fn take_end(&mut self) -> Rest {
        let refused = match &self.state {
            State::Open => return Rest::Nothing,
            State::Ending(end) => end.refusal(),
            State::Closed(refused) => *refused,
        };
        match mem::replace(&mut self.state, State::Closed(refused)) {
            State::Ending(end) => Rest::End(end),
            State::Open | State::Closed(_) => Rest::End(End::Finished(None)),
        }
    }

    /// Returns whether the loop must be notified, and assumes that it is.
    fn notify(&mut self) -> bool {
        !mem::replace(&mut self.is_notified, true)
    }

    /// Takes everything. Returns the parts.
    fn take_all(&mut self, output: &mut Vec<u8>) -> VecDeque<Part> {
        self.is_notified = false;
        self.bytes = 0;
        // The buffer is freed as well: an idle connection holds none.
        let parts = mem::take(&mut self.parts);
        parts.iter().for_each(|part| output.extend_from_slice(&part.bytes));
        parts
    }

    /// Takes `bytes` bytes, which are fewer than all. Returns the parts that end within them.
    fn take_some(&mut self, bytes: usize, output: &mut Vec<u8>) -> VecDeque<Part> {
        let (mut left, mut done) = (bytes, VecDeque::new());
        while left > 0 {
            let Some(mut part) = self.parts.pop_front() else { break };
            let taken = part.bytes.len().min(left);
            output.extend_from_slice(&part.bytes[..taken]);
            left -= taken;
            if taken == part.bytes.len() {
                done.push_back(part);
            } else {
                part.bytes.advance(taken);
                // Its beginning is sent, so nothing may replace its rest.
                part.key = None;
                self.parts.push_front(part);
            }
        }
        self.bytes -= bytes;
        done
    }
}

impl SendQueue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let queued = Queued {
            parts: VecDeque::new(),
            bytes: 0,
            bytes_max,
            state: State::Open,
            is_notified: false,
            is_stopping: false,
            elsewhere: 0,
            charge: Charge::default(),
        };
        Self {
            queued: Mutex::new(queued),
            room: Condvar::new(),
            is_stalled: AtomicBool::new(false),
        }
    }

    /// Sets the number of bytes that may wait.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.queued.lock().bytes_max = bytes_max;
    }

    /// Queues bytes. Returns whether the loop must be notified. With a deadline, waits until then
    /// for queued bytes to be taken, which makes room and releases memory.
    pub(crate) fn put(&self, part: Part, deadline: Option<Instant>) -> Result<bool, Refused> {
        let mut queued = self.queued.lock();
        let mut is_last_try = deadline.is_none();
        while let Err(refused) = queued.admit(&part) {
            let (true, Some(deadline)) = (refused.is_temporary() && !is_last_try, deadline) else {
                return Err(refused);
            };
            (queued, is_last_try) = self.room.wait_until(queued, deadline);
        }
        if part.bytes.is_empty() {
            return Ok(false);
        }
        let (replaced, is_due) = (queued.push(part), queued.notify());
        drop(queued);
        drop(replaced);
        Ok(is_due)
    }

    /// Returns whether the loop must be notified, although nothing is queued.
    fn notify(&self) -> bool {
        let mut queued = self.queued.lock();
        matches!(queued.state, State::Open) && queued.notify()
    }

    /// Ends the bytes after those that are queued. Returns whether the loop must be notified. Only
    /// the first end counts, except that a failure replaces an end that was not taken yet.
    pub(crate) fn end(&self, end: End) -> bool {
        let mut queued = self.queued.lock();
        let replaces = match &queued.state {
            State::Open => true,
            State::Ending(End::Finished(_)) => matches!(end, End::Failed(_)),
            State::Ending(_) | State::Closed(_) => false,
        };
        if !replaces {
            return false;
        }
        queued.state = State::Ending(end);
        let is_due = queued.notify();
        drop(queued);
        self.room.notify_all();
        is_due
    }

    /// Records that the server stops. Called by the owner, so no notification is needed.
    pub(crate) fn stop(&self, is_endless: bool) {
        self.queued.lock().is_stopping = true;
        if is_endless {
            self.end(End::Stopping);
        }
    }

    /// Charges what waits from now on, because the socket did not take everything that was sent
    /// before. Called by the owner before the connection waits.
    #[cold]
    pub(crate) fn stall(&self, account: &Arc<Account>) {
        let mut queued = self.queued.lock();
        if matches!(queued.state, State::Closed(_)) {
            return;
        }
        if !queued.charge.is_counted() {
            queued.charge = Charge::of(account);
        }
        let cost = queued.cost();
        queued.charge.set(account, cost);
        self.is_stalled.store(true, Ordering::Release);
    }

    /// Sets how many bytes a protocol keeps in a queue of its own. They are refused if they do not
    /// fit into the memory budget. While the peer takes what it is sent, this does nothing.
    pub(crate) fn set_elsewhere(&self, bytes: usize) -> Result<(), Refused> {
        if !self.is_stalled.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut queued = self.queued.lock();
        if !queued.charge.is_counted() {
            return Ok(());
        }
        let cost = queued.cost() - queued.elsewhere + bytes;
        if !queued.charge.try_set(cost) {
            return Err(Refused::OutOfMemory);
        }
        queued.elsewhere = bytes;
        Ok(())
    }

    /// Sets how many bytes a protocol keeps in a queue of its own after a call. Called by the
    /// owner. As soon as the socket does not take everything, they are charged, whether they fit
    /// into the memory budget or not.
    pub(crate) fn keep_elsewhere(&self, bytes: usize) {
        self.queued.lock().elsewhere = bytes;
    }

    /// Stops charging. Returns whether bytes were charged until now.
    fn resume(&self, queued: &mut Queued) -> bool {
        if !queued.charge.is_counted() {
            return false;
        }
        queued.charge = Charge::default();
        queued.elsewhere = 0;
        self.is_stalled.store(false, Ordering::Release);
        true
    }

    /// Appends all queued bytes to the output. Returns whether the connection must be closed after
    /// them.
    pub(crate) fn take(&self, output: &mut Vec<u8>) -> bool {
        let mut queued = self.queued.lock();
        let was_stalled = self.resume(&mut queued);
        queued.is_notified = false;
        // Mostly nothing waits: the owner asks before each wait, and a protocol may have a queue of
        // its own.
        let has_some = !queued.parts.is_empty();
        let parts = if has_some { queued.take_all(output) } else { VecDeque::new() };
        let must_close = !matches!(queued.state, State::Open);
        drop(queued);
        drop(parts);
        if has_some || was_stalled {
            self.room.notify_all();
        }
        must_close
    }

    /// Like [`take`](Self::take), and refuses bytes from then on.
    pub(crate) fn take_last(&self, output: &mut Vec<u8>) -> bool {
        let must_close = self.take(output);
        self.close();
        must_close
    }

    /// Calls `begin` with the number of bytes that follow, up to `bytes_max`, and appends these
    /// bytes to the output. Does not call `begin` if there are none.
    pub(crate) fn take_framed(
        &self,
        bytes_max: usize,
        output: &mut Vec<u8>,
        begin: impl FnOnce(usize, &mut Vec<u8>),
    ) -> (usize, Rest) {
        let mut queued = self.queued.lock();
        let was_stalled = self.resume(&mut queued);
        let taken = queued.bytes.min(bytes_max);
        let mut parts = VecDeque::new();
        if taken > 0 {
            begin(taken, output);
            parts = if taken == queued.bytes {
                queued.take_all(output)
            } else {
                queued.take_some(taken, output)
            };
        }
        let has_rest = queued.bytes > 0;
        queued.is_notified = has_rest;
        let rest = if has_rest { Rest::Some } else { queued.take_end() };
        drop(queued);
        drop(parts);
        if taken > 0 || was_stalled {
            self.room.notify_all();
        }
        (taken, rest)
    }

    /// Drops the queued bytes and refuses more, because the connection is closed.
    pub(crate) fn close(&self) {
        let mut queued = self.queued.lock();
        queued.state = State::Closed(queued.refusal().unwrap_or(Refused::Gone));
        queued.bytes = 0;
        self.resume(&mut queued);
        // Dropped without the lock: they may be the last handle of a program's buffer.
        let parts = mem::take(&mut queued.parts);
        drop(queued);
        drop(parts);
        self.room.notify_all();
    }

    /// Returns why bytes would be refused, other than for lack of room.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        self.queued.lock().refusal().map_or(Ok(()), Err)
    }

    /// Returns the number of bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queued.lock().bytes
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.queued.lock().is_stopping
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests;
