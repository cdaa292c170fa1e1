//! The call that a thread runs, as other threads see it.

use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::execution::key::RouteId;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Longest request ID that is kept. A W3C `traceparent` has 55 characters.
const ID_BYTES_MAX: usize = 64;

const WORDS: usize = ID_BYTES_MAX / 8;

/// The phase of a call, in the lowest bits of [`ThreadSlot::state`]. The other bits number the
/// calls.
const PHASE: u64 = 7;
const IDLE: u64 = 0;
const RUNNING: u64 = 1;
/// The detector has reported the call.
const REPORTED: u64 = 2;
/// The detector has counted the call in the report of another one.
const COUNTED: u64 = 3;
/// The call may hold its thread for as long as it wants. The detector ignores it.
const DETACHED: u64 = 4;

thread_local! {
    static CURRENT: OnceCell<Arc<ThreadSlot>> = const { OnceCell::new() };
}

/// What a thread does, for the detector. Only that thread writes it, with one exception: the
/// detector changes the phase of a running call.
pub(crate) struct ThreadSlot {
    /// Tells slots apart.
    pub(super) number: usize,
    /// The system's ID of the thread, or 0.
    pub(super) thread: u32,
    pub(super) thread_name: Option<String>,
    /// The registry that knows the slot. Only the thread itself uses it.
    pub(super) registry: AtomicUsize,
    state: AtomicU64,
    route: AtomicU64,
    /// On the clock of the registry.
    since_ns: AtomicU64,
    request_id: IdCell,
    trace_id: IdCell,
}

/// A running call, as the detector has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    state: u64,
    pub(super) route: RouteId,
    pub(super) since_ns: u64,
}

impl Seen {
    pub(super) fn is_detached(self) -> bool {
        self.state & PHASE == DETACHED
    }
}

/// How the detector has treated a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Unnoticed,
    /// It was reported. The number tells it from other calls of the thread.
    Reported(u64),
    Counted,
}

impl ThreadSlot {
    pub(super) fn new(thread: u32, thread_name: Option<String>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            thread,
            thread_name,
            registry: AtomicUsize::new(0),
            state: AtomicU64::new(IDLE),
            route: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            request_id: IdCell::new(),
            trace_id: IdCell::new(),
        }
    }

    /// Returns the slot of the current thread.
    pub(crate) fn of_this_thread(thread: impl FnOnce() -> u32) -> Arc<Self> {
        CURRENT.with(|current| {
            let new = || {
                let name = std::thread::current().name().map(str::to_owned);
                Arc::new(Self::new(thread(), name))
            };
            Arc::clone(current.get_or_init(new))
        })
    }

    /// Records that a call begins on this thread. Returns `false` if one is running already: a
    /// handler may serve another server's connection on its own thread. The inner call then has no
    /// [`end`](Self::end).
    pub(super) fn begin(&self, route: RouteId, since_ns: u64) -> bool {
        self.begin_as(RUNNING, route, since_ns)
    }

    /// As [`begin`](Self::begin), for a call that may last for as long as it wants.
    pub(super) fn begin_detached(&self, route: RouteId, since_ns: u64) -> bool {
        self.begin_as(DETACHED, route, since_ns)
    }

    #[inline]
    fn begin_as(&self, phase: u64, route: RouteId, since_ns: u64) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if state & PHASE != IDLE {
            return false;
        }
        self.route.store(route.to_bits(), Ordering::Relaxed);
        self.since_ns.store(since_ns, Ordering::Relaxed);
        // Release: a thread that sees the number of the call sees its route and its start.
        self.state.store(state.wrapping_add(PHASE + 1) | phase, Ordering::Release);
        true
    }

    /// Records that the call has ended.
    pub(super) fn end(&self) -> Fate {
        // The number stays until the next call. Acquire: the next call's route must not be visible
        // to a detector that has claimed this call.
        let state = self.state.fetch_and(!PHASE, Ordering::AcqRel);
        match state & PHASE {
            REPORTED => Fate::Reported(state & !PHASE),
            COUNTED => Fate::Counted,
            _ => Fate::Unnoticed,
        }
    }

    /// Returns the running call, unless it was reported or counted, or is detached.
    pub(super) fn running(&self) -> Option<Seen> {
        self.current().filter(|seen| seen.state & PHASE == RUNNING)
    }

    /// Returns the running call.
    pub(super) fn current(&self) -> Option<Seen> {
        let state = self.state.load(Ordering::Acquire);
        if state & PHASE == IDLE {
            return None;
        }
        let route = RouteId::from_bits(self.route.load(Ordering::Relaxed));
        Some(Seen { state, route, since_ns: self.since_ns.load(Ordering::Relaxed) })
    }

    /// Marks a call as reported. Returns its number, or `None` if it is no longer running. All that
    /// was read of this slot and of its thread since [`running`](Self::running) belongs to the call
    /// if this succeeds.
    pub(super) fn claim(&self, seen: Seen) -> Option<u64> {
        self.set_phase(seen, REPORTED).then_some(seen.state & !PHASE)
    }

    /// Marks a call as counted in the report of another one. Returns whether it is still running.
    pub(super) fn count(&self, seen: Seen) -> bool {
        self.set_phase(seen, COUNTED)
    }

    /// Returns whether a call is still running, whatever its phase. All that was read of this slot
    /// and of its thread since [`current`](Self::current) belongs to the call if it is.
    pub(super) fn still_runs(&self, seen: Seen) -> bool {
        let is_it = |state: u64| {
            (state & !PHASE == seen.state & !PHASE && state & PHASE != IDLE).then_some(state)
        };
        // A write of the same value, released for `end` as in `set_phase`. A load could be ordered
        // before the reads.
        self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_it).is_ok()
    }

    fn set_phase(&self, seen: Seen, phase: u64) -> bool {
        let new = (seen.state & !PHASE) | phase;
        // Release, for `end`: if the call is claimed, the next one begins after the reads that
        // precede the claim.
        self.state.compare_exchange(seen.state, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the ID of the request that the thread answers, if it was noted.
    pub(super) fn request_id(&self) -> Option<String> {
        self.request_id.read()
    }

    /// Returns the ID of the trace of that request, if it was noted.
    pub(super) fn trace_id(&self) -> Option<String> {
        self.trace_id.read()
    }
}

impl fmt::Debug for ThreadSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSlot").field("thread", &self.thread).finish_non_exhaustive()
    }
}

/// A short text or a number that one thread writes and others read. A reader that meets a change
/// reads nothing.
struct IdCell {
    /// Odd while the text changes.
    version: AtomicU64,
    /// The bytes of the text, or [`NUMBER`](Self::NUMBER).
    length: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl IdCell {
    /// Says that the first two words are a number.
    const NUMBER: u64 = u64::MAX;

    fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            length: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn write(&self, id: &[u8]) {
        let id = id.get(..ID_BYTES_MAX).unwrap_or(id);
        let words = id.chunks(8).map(|part| {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(bytes)
        });
        self.change(id.len() as u64, words);
    }

    fn write_number(&self, number: u128) {
        let word = |shift: u32| u64::try_from(number >> shift & u128::from(u64::MAX));
        self.change(Self::NUMBER, [word(64), word(0)].map(Result::unwrap_or_default));
    }

    #[inline]
    fn change(&self, length: u64, words: impl IntoIterator<Item = u64>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Relaxed);
        }
        self.length.store(length, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn clear(&self) {
        self.length.store(0, Ordering::Relaxed);
    }

    fn read(&self) -> Option<String> {
        let version = self.version.load(Ordering::Acquire);
        let length = self.length.load(Ordering::Relaxed);
        let words: [u64; WORDS] = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = version % 2 == 0 && version == self.version.load(Ordering::Relaxed);
        if !is_whole {
            return None;
        }
        if length == Self::NUMBER {
            let [high, low, ..] = words;
            return Some(format!("{high:016x}{low:016x}"));
        }
        let length = usize::try_from(length).ok()?;
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).take(length).collect();
        String::from_utf8(bytes).ok().filter(|id| !id.is_empty())
    }
}

/// Names the request that the current thread answers, until the result is dropped:
/// [`Stuck::request_id`](crate::Stuck::request_id) shows the name if the call does not return. It
/// is for frameworks that give IDs to requests. At most 64 bytes are kept. On a thread that serves
/// no requests it does nothing. It costs some ten stores.
///
/// ```
/// use filoplume_runtime::{Request, Response, note_request_id};
///
/// fn answer(request: Request) -> Response {
///     let _id = note_request_id(request.header("x-request-id").unwrap_or_default());
///     Response::from("Hello!")
/// }
/// # let _service: Box<dyn filoplume_runtime::Service> = Box::new(answer);
/// ```
pub fn note_request_id(id: impl AsRef<[u8]>) -> NotedRequestId {
    with_slot(|slot| slot.request_id.write(id.as_ref()));
    NotedRequestId { of_this_thread: PhantomData }
}

/// As [`note_request_id`], for an ID that is a number and is shown as 32 hexadecimal digits. It
/// costs six stores. It is for frameworks.
///
/// ```
/// let id = filoplume_runtime::note_request_number(17);
/// drop(id);
/// ```
#[inline]
pub fn note_request_number(id: u128) -> NotedRequestId {
    with_slot(|slot| slot.request_id.write_number(id));
    NotedRequestId { of_this_thread: PhantomData }
}

/// Names the trace of the request that the current thread answers, until the result is dropped.
/// [`Stuck::trace_id`](crate::Stuck::trace_id) and
/// [`RunningCall::trace_id`](crate::RunningCall::trace_id) have it as 32 hexadecimal digits. It
/// costs six stores. It is for frameworks.
///
/// ```
/// let trace = filoplume_runtime::note_trace_id(0x4bf92f3577b34da6a3ce929d0e0e4736);
/// drop(trace);
/// ```
#[inline]
pub fn note_trace_id(id: u128) -> NotedTraceId {
    with_slot(|slot| slot.trace_id.write_number(id));
    NotedTraceId { of_this_thread: PhantomData }
}

/// Calls a closure with the slot of this thread, if it serves requests.
#[inline]
fn with_slot(change: impl FnOnce(&ThreadSlot)) {
    // A guard may be dropped while the thread ends.
    let _ = CURRENT.try_with(|current| {
        if let Some(slot) = current.get() {
            change(slot);
        }
    });
}

/// The name of the current request, until it is dropped. Returned by [`note_request_id`] and
/// [`note_request_number`].
///
/// ```
/// let id = filoplume_runtime::note_request_id("17");
/// drop(id);
/// ```
#[derive(Debug)]
#[must_use = "the name is removed when this is dropped"]
pub struct NotedRequestId {
    /// Not `Send`: the name belongs to the thread.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for NotedRequestId {
    #[inline]
    fn drop(&mut self) {
        with_slot(|slot| slot.request_id.clear());
    }
}

/// The trace of the current request, until it is dropped. Returned by [`note_trace_id`]. It is for
/// frameworks.
///
/// ```
/// let trace = filoplume_runtime::note_trace_id(17);
/// drop(trace);
/// ```
#[derive(Debug)]
#[must_use = "the trace is removed when this is dropped"]
pub struct NotedTraceId {
    /// Not `Send`: the trace belongs to the thread.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for NotedTraceId {
    #[inline]
    fn drop(&mut self) {
        with_slot(|slot| slot.trace_id.clear());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn route(number: u32) -> RouteId {
        RouteId::from_bits(u64::from(number) << 32)
    }

    #[test]
    fn a_call_is_claimed_once_and_only_while_it_runs() {
        let slot = ThreadSlot::new(1, None);
        assert_eq!(slot.running(), None);
        assert!(slot.begin(route(1), 10));
        let first = slot.running().unwrap();
        assert_eq!((first.route, first.since_ns), (route(1), 10));
        let number = slot.claim(first).unwrap();
        assert_eq!(slot.claim(first), None);
        assert_eq!(slot.running(), None, "a call that was reported is not reported again");
        assert_eq!(slot.end(), Fate::Reported(number));

        assert!(slot.begin(route(2), 20));
        let second = slot.running().unwrap();
        assert!(slot.count(second));
        assert_eq!(slot.end(), Fate::Counted);

        assert!(slot.begin(route(3), 30));
        let third = slot.running().unwrap();
        assert_eq!(slot.end(), Fate::Unnoticed);
        assert_eq!(slot.claim(third), None);
    }

    #[test]
    fn a_later_call_of_the_thread_is_not_taken_for_the_one_that_was_seen() {
        let slot = ThreadSlot::new(1, None);
        assert!(slot.begin(route(1), 10));
        let seen = slot.running().unwrap();
        slot.end();
        // The same route, at the same time.
        assert!(slot.begin(route(1), 10));
        assert_eq!(slot.claim(seen), None);
        assert!(!slot.count(seen));
        assert_eq!(slot.end(), Fate::Unnoticed);
    }

    #[test]
    fn a_call_still_runs_until_it_has_ended_whatever_was_reported() {
        let slot = ThreadSlot::new(1, None);
        assert!(slot.begin(route(1), 10));
        let seen = slot.current().unwrap();
        assert!(slot.still_runs(seen));
        let number = slot.claim(seen).unwrap();
        assert!(slot.still_runs(seen));
        assert_eq!(slot.current().unwrap().route, route(1));
        assert_eq!(slot.end(), Fate::Reported(number));
        assert_eq!(slot.current(), None);
        assert!(!slot.still_runs(seen));
        // The same route, at the same time.
        assert!(slot.begin(route(1), 10));
        assert!(!slot.still_runs(seen));
    }

    #[test]
    fn a_detached_call_is_listed_and_not_reported() {
        let slot = ThreadSlot::new(1, None);
        assert!(slot.begin_detached(route(1), 10));
        assert!(!slot.begin(route(2), 20));
        assert_eq!(slot.running(), None);
        let seen = slot.current().unwrap();
        assert!(seen.is_detached() && slot.still_runs(seen));
        assert_eq!(slot.end(), Fate::Unnoticed);
        assert!(slot.begin(route(2), 20));
        assert!(!slot.current().unwrap().is_detached());
    }

    #[test]
    fn a_call_within_a_call_leaves_the_outer_one_in_its_slot() {
        let slot = ThreadSlot::new(1, None);
        assert!(slot.begin(route(1), 10));
        assert!(!slot.begin(route(2), 20));
        assert_eq!(slot.running().unwrap().route, route(1));
    }

    #[test]
    fn an_id_is_kept_until_its_guard_is_dropped() {
        let slot = ThreadSlot::of_this_thread(|| 1);
        for (id, expected) in [
            ("17", "17"),
            ("0123456789abcdef", "0123456789abcdef"),
            (&*"x".repeat(64), &*"x".repeat(64)),
            (&*"y".repeat(65), &*"y".repeat(64)),
        ] {
            let noted = note_request_id(id);
            assert_eq!(slot.request_id().as_deref(), Some(expected));
            drop(noted);
            assert_eq!(slot.request_id(), None);
        }
        let noted = note_request_number(0x17f);
        let noted_trace = note_trace_id(17);
        assert_eq!(slot.request_id().as_deref(), Some("0000000000000000000000000000017f"));
        drop(noted);
        assert_eq!(slot.trace_id().as_deref(), Some("00000000000000000000000000000011"));
        drop(noted_trace);
        assert_eq!(slot.trace_id(), None);
        assert_eq!(slot.request_id(), None);
        let noted = note_request_number(u128::MAX - 1);
        assert_eq!(slot.request_id().as_deref(), Some("fffffffffffffffffffffffffffffffe"));
        drop(noted);
        // Cut within a character.
        let _noted = note_request_id("ä".repeat(33).replacen('ä', "a", 1));
        assert_eq!(slot.request_id(), None);
    }
}
