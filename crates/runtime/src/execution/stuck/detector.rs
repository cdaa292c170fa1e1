//! The thread that looks for late calls.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::history::{History, nanos};
#[cfg(target_os = "linux")]
use super::linux::look;
#[cfg(not(target_os = "linux"))]
use super::other::look;
use super::report::Stuck;
use super::slot::{Seen, ThreadSlot};
use super::wait::Wait;
use super::{CallId, Calls, Caught, Ended, LostState, Turn};
use crate::execution::key::{ExecutionKey, RouteId};
use crate::execution::scheduling::with_normal_policy;
use crate::sorted::insert_sorted;

/// The maximum number of reports in quick succession. A report costs some reads of `/proc` and a
/// line of the log, and a database that hangs makes all its requests late.
const REPORTS_MAX: u32 = 16;

/// The time after which one more report is possible.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// What the detector asks of its server.
pub(crate) trait Reporter: Send + Sync + 'static {
    /// Returns the name of a route.
    fn name_of(&self, route: RouteId) -> Option<String>;

    /// Returns how many calls of a route have ended on event loops.
    fn calls_on_loops(&self, key: ExecutionKey) -> u64;

    /// Reports a call to the program.
    fn tell(&self, stuck: &Stuck);
}

/// Returns the name of a route. Services name their routes, and their code may panic.
pub(super) fn name_of(reporter: &dyn Reporter, route: RouteId) -> Option<String> {
    catch_unwind(AssertUnwindSafe(|| reporter.name_of(route))).ok().flatten()
}

/// Returns what a thread waits for, and its possible frames.
pub(super) type Look<'a> = &'a dyn Fn(u32) -> (Wait, Vec<String>);

impl Calls {
    /// Starts the detector.
    pub(crate) fn start(
        self: &Arc<Self>,
        name: String,
        reporter: Weak<dyn Reporter>,
    ) -> io::Result<()> {
        let Some(history) = &self.history else { return Ok(()) };
        let floor = Duration::from_nanos(history.floor_ns());
        let calls = Arc::clone(self);
        let run = with_normal_policy(move || watch(&calls, &reporter, floor));
        thread::Builder::new().name(name).spawn(run)?;
        Ok(())
    }
}

fn watch(calls: &Calls, reporter: &Weak<dyn Reporter>, floor: Duration) {
    calls.sleep.enter();
    let mut detector = Detector::new(calls, &look, Instant::now());
    while !calls.sleep.is_stopped() {
        calls.sleep.park(|| calls.is_idle());
        // A call that has just begun is not late yet. The nap bounds how often the first call after
        // an idle time has to wake this thread.
        let mut nap = floor / 2;
        while !calls.sleep.is_stopped() {
            thread::park_timeout(nap);
            let Some(reporter) = reporter.upgrade() else { return };
            let Some(due) = detector.sweep(&*reporter, Instant::now()) else { break };
            // Calls that begin meanwhile are late after `floor` at the earliest.
            nap = due.saturating_duration_since(Instant::now()).clamp(floor / 16, floor);
        }
    }
}

/// The state of the detector. It has no clock: the time is an argument.
pub(super) struct Detector<'a> {
    calls: &'a Calls,
    look: Look<'a>,
    reports: u64,
    /// The calls that were reported and have not ended.
    open: HashMap<CallId, Open>,
    /// How many reports are possible now, and when one of them was added.
    budget: u32,
    budget_since: Instant,
    unreported: u64,
}

/// A call that was reported.
struct Open {
    stuck: Stuck,
    key: ExecutionKey,
    bound_ns: u64,
}

/// A call that is late.
struct Late {
    call: LateCall,
    route: RouteId,
    since_ns: u64,
    bound_ns: u64,
}

enum LateCall {
    OnPool(Arc<ThreadSlot>, Seen),
    OnLoop(Turn, Caught),
}

impl<'a> Detector<'a> {
    pub(super) fn new(calls: &'a Calls, look: Look<'a>, now: Instant) -> Self {
        Self {
            calls,
            look,
            reports: 0,
            open: HashMap::new(),
            budget: REPORTS_MAX,
            budget_since: now,
            unreported: 0,
        }
    }

    /// Reports all calls that are late, and the ends of those that were reported. Returns when the
    /// next call may be late, or `None` if none runs.
    pub(super) fn sweep(&mut self, reporter: &dyn Reporter, now: Instant) -> Option<Instant> {
        let Some(history) = &self.calls.history else { return None };
        self.report_ends(history, reporter);
        let (late, next_ns) = self.find(history, reporter, self.calls.ns(now));
        self.refill(now);
        for late in group(late) {
            self.report(history, reporter, late);
        }
        next_ns.map(|ns| self.calls.born + Duration::from_nanos(ns))
    }

    fn report_ends(&mut self, history: &History, reporter: &dyn Reporter) {
        let ended: Vec<Ended> = std::mem::take(&mut *self.calls.ended.lock());
        for Ended { id, took_ns } in ended {
            let Some(Open { mut stuck, key, bound_ns }) = self.open.remove(&id) else { continue };
            history.ended_late(key, took_ns, bound_ns);
            stuck.running = Duration::from_nanos(took_ns);
            stuck.has_ended = true;
            tell(reporter, &stuck);
        }
    }

    /// Returns the calls that are late, and when the next one will be.
    fn find(
        &self,
        history: &History,
        reporter: &dyn Reporter,
        now_ns: u64,
    ) -> (Vec<Late>, Option<u64>) {
        let mut found = Vec::new();
        let mut next_ns: Option<u64> = None;
        let mut examine = |call, route: RouteId, since_ns: u64| {
            let bound_ns = history.bound_ns(route.key, reporter.calls_on_loops(route.key));
            let due_ns = since_ns.saturating_add(bound_ns);
            if due_ns <= now_ns {
                found.push(Late { call, route, since_ns, bound_ns });
            } else {
                next_ns = Some(next_ns.map_or(due_ns, |next| next.min(due_ns)));
            }
        };
        for slot in self.calls.slots() {
            if let Some(seen) = self.calls.runs(&slot) {
                examine(LateCall::OnPool(slot, seen), seen.route, seen.since_ns);
            }
        }
        for lost in self.calls.lost.lock().iter() {
            if let LostState::Running(caught) = lost.state {
                let since_ns = self.calls.ns(caught.since);
                examine(LateCall::OnLoop(lost.of, caught), caught.route, since_ns);
            }
        }
        (found, next_ns)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.budget_since);
        let more =
            u32::try_from(passed.as_nanos() / REPORT_INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if more > 0 {
            self.budget = self.budget.saturating_add(more).min(REPORTS_MAX);
            self.budget_since += REPORT_INTERVAL * more;
        }
    }

    /// Reports the first call of a route, which has been running longest, and counts the others.
    fn report(&mut self, history: &History, reporter: &dyn Reporter, late: Vec<Late>) {
        let mut late = late.into_iter();
        if self.budget == 0 {
            self.unreported += late.map(|late| u64::from(self.count(history, &late))).sum::<u64>();
            return;
        }
        let Some((mut stuck, id, first)) = late.find_map(|late| {
            let (stuck, id) = self.examine(history, reporter, &late)?;
            Some((stuck, id, late))
        }) else {
            return;
        };
        stuck.alike = late.filter(|late| self.count(history, late)).count();
        stuck.unreported = std::mem::take(&mut self.unreported);
        self.budget -= 1;
        self.reports += 1;
        stuck.number = self.reports;
        tell(reporter, &stuck);
        let stuck = Stuck { wait: None, frames: Vec::new(), alike: 0, unreported: 0, ..stuck };
        self.open.insert(id, Open { stuck, key: first.route.key, bound_ns: first.bound_ns });
    }

    /// Finds out what a call does, and claims it. `None` if it has ended meanwhile.
    fn examine(
        &self,
        history: &History,
        reporter: &dyn Reporter,
        late: &Late,
    ) -> Option<(Stuck, CallId)> {
        let (slot, thread) = match &late.call {
            LateCall::OnPool(slot, _) => (Some(Arc::clone(slot)), slot.thread),
            LateCall::OnLoop(_, caught) => (self.calls.slot_of(caught.thread), caught.thread),
        };
        let (wait, frames) = (self.look)(thread);
        let request_id = slot.as_ref().and_then(|slot| slot.request_id());
        let trace_id = slot.as_ref().and_then(|slot| slot.trace_id());
        // If this succeeds, all that was read so far belongs to the call.
        let id = self.claim(&late.call)?;
        let route = name_of(reporter, late.route);
        let now_ns = nanos(self.calls.born.elapsed());
        let stuck = Stuck {
            number: 0,
            route,
            request_id,
            trace_id,
            running: Duration::from_nanos(now_ns.saturating_sub(late.since_ns)),
            longest: Duration::from_nanos(history.longest_ns(late.route.key)),
            is_one_of_the_first: !history
                .is_known(late.route.key, reporter.calls_on_loops(late.route.key)),
            has_ended: false,
            wait: Some(wait),
            thread: slot.and_then(|slot| slot.thread_name.clone()),
            frames,
            alike: 0,
            unreported: 0,
        };
        Some((stuck, id))
    }

    fn claim(&self, call: &LateCall) -> Option<CallId> {
        match call {
            LateCall::OnPool(slot, seen) => {
                let number = slot.claim(*seen)?;
                Some(CallId::OnPool { slot: slot.number, number })
            }
            LateCall::OnLoop(of, _) => {
                let Turn { event_loop, turn } = *of;
                self.set_lost(*of, LostState::Reported)
                    .then_some(CallId::OnLoop { event_loop, turn })
            }
        }
    }

    /// Marks a call as counted. Returns whether it is still running.
    fn count(&self, history: &History, late: &Late) -> bool {
        history.counted(late.route.key, late.bound_ns);
        match &late.call {
            LateCall::OnPool(slot, seen) => slot.count(*seen),
            LateCall::OnLoop(of, _) => self.set_lost(*of, LostState::Counted),
        }
    }

    fn set_lost(&self, of: Turn, state: fn(Caught) -> LostState) -> bool {
        let mut lost = self.calls.lost.lock();
        let Some(found) = lost.iter_mut().find(|lost| lost.of == of) else { return false };
        if let LostState::Running(caught) = found.state {
            found.state = state(caught);
            return true;
        }
        false
    }
}

/// Sorts calls by route, and those of a route by their start.
fn group(late: Vec<Late>) -> Vec<Vec<Late>> {
    let mut sorted = Vec::with_capacity(late.len());
    for late in late {
        insert_sorted(&mut sorted, late, usize::MAX, |late| (late.route.to_bits(), late.since_ns));
    }
    let mut groups: Vec<Vec<Late>> = Vec::new();
    for late in sorted {
        match groups.last_mut() {
            Some(group) if group.first().is_some_and(|first| first.route == late.route) => {
                group.push(late);
            }
            _ => groups.push(vec![late]),
        }
    }
    groups
}

fn tell(reporter: &dyn Reporter, stuck: &Stuck) {
    if catch_unwind(AssertUnwindSafe(|| reporter.tell(stuck))).is_err() {
        tracing::error!("`Service::stuck` panicked");
    }
}
