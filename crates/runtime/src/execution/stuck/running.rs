//! The calls that run at this moment, for people who look at a server.
//!
//! A list is made when somebody asks for it, from what threads and the watchdog write anyway. The
//! threads continue meanwhile, so what was read of a call is kept only if the call still runs
//! afterwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::detector::{Reporter, name_of};
use super::history::nanos;
#[cfg(target_os = "linux")]
use super::linux::glance;
#[cfg(not(target_os = "linux"))]
use super::other::glance;
use super::slot::{Seen, ThreadSlot};
use super::wait::Wait;
use super::{Calls, Caught, LostState, Turn};
use crate::execution::key::RouteId;
use crate::execution::metrics::Runs;
use crate::sorted::insert_sorted;

/// How many calls are listed. Nobody reads a longer list, and each entry costs reads of `/proc`.
const LISTED_MAX: usize = 64;

/// The system is asked only about calls that have been running for this long. Shorter ones have
/// ended before somebody has read what they wait for.
const LOOKED_AT_MIN: Duration = Duration::from_millis(10);

/// A call of a handler that runs at this moment. Returned by
/// [`Monitor::calls`](crate::Monitor::calls).
///
/// ```
/// use filoplume_runtime::RunningCall;
///
/// fn line(call: &RunningCall) -> String {
///     let route = call.route.as_deref().unwrap_or("(no name)");
///     let wait = call.wait.as_ref().map(|wait| format!(", and {wait}")).unwrap_or_default();
///     format!("{route} has been running for {:?}{wait}", call.running)
/// }
/// # let _ = line;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunningCall {
    /// The name of the thread. For a call that began on an event loop, only Linux tells.
    pub thread: Option<String>,
    /// The system's ID of the thread, as `top -H` shows it; 0 if the system does not tell. Only
    /// Linux does.
    pub thread_id: u32,
    /// The name of the route, as in [`RouteMetrics::name`](crate::RouteMetrics::name).
    pub route: Option<String>,
    /// The ID of the request, if it was [noted](crate::note_request_id).
    pub request_id: Option<String>,
    /// The ID of its trace, if it was [noted](crate::note_trace_id).
    pub trace_id: Option<String>,
    /// How long it has been running. For a call that began on an event loop up to 3 ms too short.
    pub running: Duration,
    /// Where it began. One that began on an event loop and runs for longer than some milliseconds
    /// has lost its loop: another thread leads the loop.
    pub runs: Runs,
    /// What its thread waits for at this moment. Looked up for calls that have been running for at
    /// least 10 ms; `None` for others.
    pub wait: Option<Wait>,
    /// Whether the call may hold its thread for as long as it wants: it has taken over its
    /// connection, as a blocking WebSocket does, or fills a pushed body. Such calls are never
    /// reported as [stuck](crate::Stuck).
    pub is_detached: bool,
}

/// Returns what each of these threads waits for.
pub(super) type Glance<'a> = &'a dyn Fn(&[u32]) -> Vec<Wait>;

/// Returns the current turn of an event loop, if the loop exists.
pub(crate) type TurnOf<'a> = &'a dyn Fn(usize) -> Option<u64>;

/// A call that runs, or ran when it was found.
struct Found {
    source: Source,
    thread: u32,
    route: RouteId,
    since_ns: u64,
}

/// Where a call was found.
enum Source {
    Slot(Arc<ThreadSlot>, Seen),
    /// In the list of calls that have lost their loops.
    Lost(Turn),
    /// On a loop that no other thread could lead.
    Kept(Turn),
}

impl Found {
    fn is_detached(&self) -> bool {
        matches!(&self.source, Source::Slot(_, seen) if seen.is_detached())
    }
}

impl Calls {
    /// Returns the calls that run: first those that are not detached, and of each kind the oldest
    /// first.
    pub(crate) fn list(
        &self,
        reporter: &dyn Reporter,
        turn_of: TurnOf<'_>,
        now: Instant,
    ) -> Vec<RunningCall> {
        self.list_with(&glance, reporter, turn_of, now)
    }

    pub(super) fn list_with(
        &self,
        glance: Glance<'_>,
        reporter: &dyn Reporter,
        turn_of: TurnOf<'_>,
        now: Instant,
    ) -> Vec<RunningCall> {
        let slots = self.slots();
        let mut found = Vec::new();
        for running in self.find_running(&slots, turn_of) {
            insert_sorted(&mut found, running, LISTED_MAX, |found| {
                (found.is_detached(), found.since_ns)
            });
        }
        let threads: HashMap<u32, &ThreadSlot> =
            slots.iter().map(|slot| (slot.thread, &**slot)).filter(|(id, _)| *id != 0).collect();
        let now_ns = self.ns(now);
        let is_old = |found: &Found| now_ns.saturating_sub(found.since_ns) >= nanos(LOOKED_AT_MIN);
        let old: Vec<u32> =
            found.iter().filter(|found| is_old(found)).map(|it| it.thread).collect();
        let mut waits = if old.is_empty() { Vec::new() } else { glance(&old) }.into_iter();
        let describe = |found: Found| {
            let wait = if is_old(&found) { waits.next() } else { None };
            let slot = match &found.source {
                Source::Slot(slot, _) => Some(&**slot),
                Source::Lost(_) | Source::Kept(_) => threads.get(&found.thread).copied(),
            };
            let request_id = slot.and_then(ThreadSlot::request_id);
            let trace_id = slot.and_then(ThreadSlot::trace_id);
            // All of this belongs to the call if it has not ended yet.
            self.still_runs(&found.source, turn_of).then(|| RunningCall {
                thread: slot.and_then(|slot| slot.thread_name.clone()),
                thread_id: found.thread,
                route: name_of(reporter, found.route),
                request_id,
                trace_id,
                running: Duration::from_nanos(now_ns.saturating_sub(found.since_ns)),
                runs: found.source.runs(),
                wait,
                is_detached: found.is_detached(),
            })
        };
        found.into_iter().filter_map(describe).collect()
    }

    /// Returns the calls that run on the pool and may not hold their threads for as long as they
    /// want: the route of each, its thread, and since when it has been running. Calls on threads
    /// without a known ID are left out.
    pub(crate) fn on_pool(&self) -> impl Iterator<Item = (RouteId, u32, Instant)> {
        self.slots().into_iter().filter_map(|slot| {
            let seen = slot.current().filter(|seen| !seen.is_detached())?;
            let is_ours = slot.registry.load(Ordering::Relaxed) == self.number;
            let since = self.born + Duration::from_nanos(seen.since_ns);
            (is_ours && slot.thread != 0).then_some((seen.route, slot.thread, since))
        })
    }

    fn find_running(&self, slots: &[Arc<ThreadSlot>], turn_of: TurnOf<'_>) -> Vec<Found> {
        let in_slots = slots.iter().filter_map(|slot| {
            let seen = slot.current()?;
            // The registry is read after the call: a thread that works for another server by now
            // has changed it before its new call began.
            let is_ours = slot.registry.load(Ordering::Relaxed) == self.number;
            is_ours.then(|| Found {
                source: Source::Slot(Arc::clone(slot), seen),
                thread: slot.thread,
                route: seen.route,
                since_ns: seen.since_ns,
            })
        });
        let of_loop = |source, caught: Caught| Found {
            source,
            thread: caught.thread,
            route: caught.route,
            since_ns: self.ns(caught.since),
        };
        let mut found: Vec<Found> = in_slots.collect();
        for lost in self.lost.lock().iter() {
            if let Some(caught) = lost.state.caught() {
                found.push(of_loop(Source::Lost(lost.of), caught));
            }
        }
        let mut kept = self.kept.lock();
        kept.retain(|(of, _)| turn_of(of.event_loop) == Some(of.turn));
        found.extend(kept.iter().map(|(of, caught)| of_loop(Source::Kept(*of), *caught)));
        found
    }

    fn still_runs(&self, source: &Source, turn_of: TurnOf<'_>) -> bool {
        match source {
            Source::Slot(slot, seen) => slot.still_runs(*seen),
            // The entry of a call is removed before its thread does anything else.
            Source::Lost(of) => {
                let is_it = |lost: &super::Lost| lost.of == *of && lost.state.caught().is_some();
                self.lost.lock().iter().any(is_it)
            }
            Source::Kept(of) => turn_of(of.event_loop) == Some(of.turn),
        }
    }

    /// Records a call that should lose its loop, but keeps it because no other thread could lead
    /// the loop.
    pub(crate) fn kept(&self, of: Turn, caught: Caught) {
        let mut kept = self.kept.lock();
        match kept.iter_mut().find(|(known, _)| known.event_loop == of.event_loop) {
            Some((known, _)) if *known == of => {}
            Some(entry) => *entry = (of, caught),
            // At most one per loop.
            None => kept.push((of, caught)),
        }
    }
}

impl Source {
    fn runs(&self) -> Runs {
        match self {
            Self::Slot(..) => Runs::OnPool,
            Self::Lost(_) | Self::Kept(_) => Runs::OnLoop,
        }
    }
}

impl LostState {
    /// Returns the call, unless it has returned.
    fn caught(self) -> Option<Caught> {
        match self {
            Self::Running(caught) | Self::Reported(caught) | Self::Counted(caught) => Some(caught),
            Self::Returned => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
