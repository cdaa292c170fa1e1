//! Runs checks on threads of their own, and keeps what they found.
//!
//! A check runs when a probe asks for it and its last result is too old. The probe waits for the
//! checks that run, each until its deadline. A check that runs longer than that is late. It is not
//! started again before it ends, so a check that never ends uses one thread, and later probes do
//! not wait for it. Without probes nothing runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use filoplume_runtime::{TaskPool, Wait, WatchedThread};
use parking_lot::{Condvar, Mutex};

use crate::core::error::{Error, Result};
use crate::core::panics::Panicked;
use crate::log::log_without_subscriber;

/// The maximum number of probes that wait for checks at once, because each holds a thread. It is
/// half of the threads that are reserved for vital routes. Further probes are answered with the
/// latest results.
const WAITING_MAX: usize = 4;

/// Longer deadlines are shortened. A load balancer would have given up long before, and an
/// `Instant` cannot represent every time.
const DEADLINE_MAX: Duration = Duration::from_secs(60 * 60);

/// A check as the program wrote it.
pub(super) struct Check {
    pub(super) name: String,
    pub(super) deadline: Duration,
    pub(super) purpose: Purpose,
    pub(super) run: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

/// What follows from a check that does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The process is of no use any more.
    Live,
    /// The instance cannot serve now.
    Ready,
    /// Nothing: the result is only shown.
    Shown,
}

/// What is known of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not ended yet since the start.
    Unknown,
    Passed,
    Failed,
    /// It took longer than its deadline, or is still running after it.
    Late,
}

/// What a probe sees of a check.
#[derive(Clone, Debug)]
pub(super) struct Finding<'a> {
    pub(super) name: &'a str,
    pub(super) purpose: Purpose,
    pub(super) state: State,
    /// How long the latest run took, or has been running.
    pub(super) took: Duration,
    /// Whether it has passed since the start.
    pub(super) has_passed: bool,
    /// For how long it has been in this state. `None` if it has not ended yet.
    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "the console shows it"))]
    pub(super) since: Option<Duration>,
    /// Why the latest run has failed, in one line.
    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "the console shows it"))]
    pub(super) error: Option<Arc<str>>,
    /// The thread of a run that is late.
    pub(super) thread: Option<WatchedThread>,
}

/// All checks of an app.
pub(super) struct Checks {
    checks: Box<[Check]>,
    cache_for: Duration,
    shared: Mutex<Shared>,
    /// Notified when a run ends.
    ended: Condvar,
    pool: TaskPool,
}

struct Shared {
    records: Box<[Record]>,
    /// The probes that wait.
    waiting: usize,
}

/// What is remembered of a check.
#[derive(Clone, Debug, Default)]
struct Record {
    running_since: Option<Instant>,
    /// The thread that runs it, once it has begun.
    thread: Option<WatchedThread>,
    /// Since when all runs that ended had the state of the last one.
    state_since: Option<Instant>,
    /// Why the last run has failed, in one line.
    error: Option<Arc<str>>,
    last: Option<Run>,
    has_passed: bool,
    /// The state that was logged last, because only changes are logged.
    logged: Option<State>,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
struct Run {
    state: State,
    took: Duration,
    ended: Instant,
}

impl State {
    /// Returns the state after a run that took this long.
    fn of(result: &Result<()>, took: Duration, deadline: Duration) -> Self {
        match result {
            Err(_) => Self::Failed,
            Ok(()) if took >= deadline => Self::Late,
            Ok(()) => Self::Passed,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Late => "late",
        }
    }
}

impl Purpose {
    /// Returns whether an instance needs the check to pass to be ready.
    pub(super) fn is_required(self) -> bool {
        self != Self::Shown
    }
}

impl Record {
    fn is_due(&self, now: Instant, cache_for: Duration) -> bool {
        self.running_since.is_none()
            && self.last.is_none_or(|run| now.saturating_duration_since(run.ended) >= cache_for)
    }

    /// Returns whether the check has been running for longer than its deadline at `now`.
    fn is_late(&self, check: &Check, now: Instant) -> bool {
        self.running_since.is_some_and(|since| now >= since + check.deadline)
    }

    /// Returns until when a probe waits for the check, if it is running and its deadline is not
    /// over.
    fn awaited_until(&self, check: &Check, now: Instant) -> Option<Instant> {
        self.running_since.map(|since| since + check.deadline).filter(|&until| until > now)
    }

    fn finding<'a>(&self, check: &'a Check, now: Instant) -> Finding<'a> {
        let is_late = self.is_late(check, now);
        let (state, took) = match (self.running_since, self.last) {
            (Some(since), _) if is_late => (State::Late, now - since),
            (_, Some(run)) => (run.state, run.took),
            (since, None) => (State::Unknown, since.map_or(Duration::ZERO, |since| now - since)),
        };
        let since = match self.running_since {
            Some(since) if is_late => Some(self.late_since().unwrap_or(since + check.deadline)),
            _ => self.state_since,
        };
        let Check { name, purpose, .. } = check;
        Finding {
            name,
            purpose: *purpose,
            state,
            took,
            has_passed: self.has_passed,
            since: since.map(|since| now.saturating_duration_since(since)),
            error: self.error.clone().filter(|_| state == State::Failed),
            thread: self.thread.filter(|_| is_late),
        }
    }

    /// Returns since when the runs that have ended were late.
    fn late_since(&self) -> Option<Instant> {
        self.last.filter(|run| run.state == State::Late).and(self.state_since)
    }

    /// Returns whether this state is news for the log.
    fn is_news(&mut self, state: State) -> bool {
        let before = self.logged.replace(state);
        before != Some(state) && (before.is_some() || state != State::Passed)
    }
}

impl Checks {
    pub(super) fn new(mut checks: Vec<Check>, cache_for: Duration) -> Self {
        for check in &mut checks {
            check.deadline = check.deadline.min(DEADLINE_MAX);
        }
        let count = checks.len().max(1);
        Self {
            shared: Mutex::new(Shared {
                records: vec![Record::default(); checks.len()].into(),
                waiting: 0,
            }),
            ended: Condvar::new(),
            // The pool has one thread per check, so that no check waits for another. The threads
            // start with the first run.
            pool: TaskPool::builder()
                .thread_name("health")
                .threads_max(count)
                .queue_capacity(count)
                .build(),
            checks: checks.into(),
            cache_for,
        }
    }

    /// Returns what the checks with one of these purposes find, after a wait until they have ended
    /// or are late. Runs those whose results are too old.
    pub(super) fn probe(self: &Arc<Self>, is_asked: impl Fn(Purpose) -> bool) -> Vec<Finding<'_>> {
        let is_asked = |index: usize| is_asked(self.checks[index].purpose);
        let asked: Vec<usize> = (0..self.checks.len()).filter(|&index| is_asked(index)).collect();
        self.start_due(&asked);
        let mut shared = self.shared.lock();
        if shared.waiting < WAITING_MAX {
            shared.waiting += 1;
            while let Some(until) = self.awaited_until(&shared, &asked) {
                self.ended.wait_until(&mut shared, until);
            }
            shared.waiting -= 1;
        }
        let now = Instant::now();
        let mut late = Vec::new();
        let findings = asked
            .iter()
            .map(|&index| {
                let (check, record) = (&self.checks[index], &mut shared.records[index]);
                let finding = record.finding(check, now);
                if record.is_late(check, now) && record.is_news(State::Late) {
                    late.push((check, finding.clone()));
                }
                finding
            })
            .collect();
        drop(shared);
        late.iter().for_each(|(check, finding)| log_hanging(check, finding));
        findings
    }

    /// Returns what is known of all checks now. Runs none, and waits for none.
    pub(super) fn known(&self) -> Vec<Finding<'_>> {
        let (now, shared) = (Instant::now(), self.shared.lock());
        let both = self.checks.iter().zip(&shared.records);
        both.map(|(check, record)| record.finding(check, now)).collect()
    }

    /// Starts the checks whose results are too old.
    fn start_due(self: &Arc<Self>, asked: &[usize]) {
        let mut shared = self.shared.lock();
        let now = Instant::now();
        let is_due = |&index: &usize| shared.records[index].is_due(now, self.cache_for);
        let due: Vec<usize> = asked.iter().copied().filter(is_due).collect();
        for &index in &due {
            shared.records[index].running_since = Some(now);
        }
        drop(shared);
        for index in due {
            let checks = Arc::clone(self);
            if let Err(error) = self.pool.execute(move || checks.run(index)) {
                self.end(index, Err(Error::internal(error)));
            }
        }
    }

    /// Returns until when to wait for the checks that are running and whose deadline is not over.
    fn awaited_until(&self, shared: &Shared, asked: &[usize]) -> Option<Instant> {
        let now = Instant::now();
        let until = |&index: &usize| shared.records[index].awaited_until(&self.checks[index], now);
        asked.iter().filter_map(until).max()
    }

    /// Runs a check on this thread.
    fn run(&self, index: usize) {
        self.shared.lock().records[index].thread = Some(WatchedThread::current());
        let result = catch_unwind(AssertUnwindSafe(|| (self.checks[index].run)()))
            .unwrap_or_else(|panic| Err(Error::internal(Panicked::caught(&*panic))));
        self.end(index, result);
    }

    fn end(&self, index: usize, result: Result<()>) {
        let check = &self.checks[index];
        let now = Instant::now();
        let mut shared = self.shared.lock();
        let record = &mut shared.records[index];
        let took = record.running_since.take().map_or(Duration::ZERO, |since| now - since);
        let state = State::of(&result, took, check.deadline);
        record.has_passed |= state == State::Passed;
        if record.last.is_none_or(|run| run.state != state) {
            record.state_since = Some(now);
        }
        record.thread = None;
        record.error = result.as_ref().err().map(|error| error.in_one_line().into());
        record.last = Some(Run { state, took, ended: now });
        let is_news = record.is_news(state);
        drop(shared);
        self.ended.notify_all();
        match result {
            _ if !is_news => {}
            Err(error) => log_failed(check, &error),
            Ok(()) if state == State::Late => log_late(check),
            Ok(()) => log_passed(check),
        }
    }
}

fn log_failed(check: &Check, error: &Error) {
    let (name, error) = (&*check.name, error.in_one_line());
    let required = check.purpose.is_required();
    tracing::warn!(check = name, required, error, "a health check failed");
    log_without_subscriber(&format!("the health check {name} failed: {error}"));
}

fn log_late(check: &Check) {
    let (name, deadline) = (&*check.name, check.deadline);
    let required = check.purpose.is_required();
    tracing::warn!(check = name, required, ?deadline, "a health check exceeded its deadline");
    log_without_subscriber(&format!("the health check {name} took longer than {deadline:?}"));
}

/// Logs a check that exceeds its deadline and still runs, with what its thread waits for.
fn log_hanging(check: &Check, finding: &Finding<'_>) {
    let (name, deadline, running) = (&*check.name, check.deadline, finding.took);
    let required = check.purpose.is_required();
    let wait = finding.thread.map_or(Wait::Unknown, |thread| thread.wait());
    tracing::warn!(
        check = name,
        required,
        ?deadline,
        ?running,
        waits_for = %wait,
        "a health check exceeded its deadline"
    );
    log_without_subscriber(&format!(
        "the health check {name} has been running for {running:.1?}, longer than its deadline of \
         {deadline:?}, and {wait}"
    ));
}

fn log_passed(check: &Check) {
    let (name, required) = (&*check.name, check.purpose.is_required());
    tracing::info!(check = name, required, "a health check passes again");
    log_without_subscriber(&format!("the health check {name} passes again"));
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Checks {
        /// Returns how many probes wait.
        pub(crate) fn waiting(&self) -> usize {
            self.shared.lock().waiting
        }

        /// Returns whether a check runs.
        pub(crate) fn is_running(&self) -> bool {
            self.shared.lock().records.iter().any(|record| record.running_since.is_some())
        }
    }

    #[test]
    fn only_changes_are_logged() {
        use State::{Failed, Late, Passed};
        let mut record = Record::default();
        let states = [Passed, Passed, Failed, Failed, Late, Late, Passed, Passed, Failed];
        let news = states.map(|state| record.is_news(state));
        assert_eq!(news, [false, false, true, false, true, false, true, false, true]);
        assert!(Record::default().is_news(Failed));
    }

    #[test]
    fn a_run_is_late_at_its_deadline() {
        let deadline = Duration::from_secs(10);
        let before = deadline - Duration::from_nanos(1);
        assert_eq!(State::of(&Ok(()), before, deadline), State::Passed);
        assert_eq!(State::of(&Ok(()), deadline, deadline), State::Late);
        let failed = Err(Error::internal("no route"));
        assert_eq!(State::of(&failed, deadline, deadline), State::Failed);
    }

    #[test]
    fn a_result_is_used_until_it_is_too_old() {
        let (ended, cache_for) = (Instant::now(), Duration::from_secs(1));
        let last = Some(Run { state: State::Passed, took: Duration::ZERO, ended });
        let record = Record { last, ..Record::default() };
        assert!(!record.is_due(ended + cache_for - Duration::from_nanos(1), cache_for));
        assert!(record.is_due(ended + cache_for, cache_for));
    }

    #[test]
    fn a_state_lasts_until_a_run_ends_with_another() {
        let checks = Checks::new(vec![check()], Duration::ZERO);
        let begun = Instant::now();
        checks.end(0, Ok(()));
        checks.shared.lock().records[0].state_since = Some(begun);
        checks.end(0, Ok(()));
        assert_eq!(checks.shared.lock().records[0].state_since, Some(begun));
        checks.end(0, Err(Error::internal("no route")));
        assert_ne!(checks.shared.lock().records[0].state_since, Some(begun));
    }

    fn check() -> Check {
        Check {
            name: "a".to_owned(),
            deadline: Duration::from_secs(10),
            purpose: Purpose::Ready,
            run: Box::new(|| Ok(())),
        }
    }

    fn hanging_for(time: Duration, last: State) -> (Record, Instant) {
        let now = Instant::now();
        let record = Record {
            running_since: Some(now),
            state_since: Some(now),
            error: Some("no route".into()),
            last: Some(Run { state: last, took: Duration::ZERO, ended: now }),
            ..Record::default()
        };
        (record, now + time)
    }

    #[test]
    fn a_check_that_hangs_tells_no_error_of_an_earlier_run_and_is_late_since_its_deadline() {
        let check = check();
        for (last, since) in [(State::Failed, 20), (State::Passed, 20), (State::Late, 30)] {
            let (record, now) = hanging_for(Duration::from_secs(30), last);
            let finding = record.finding(&check, now);
            assert_eq!((finding.state, finding.error), (State::Late, None), "{last:?}");
            assert_eq!(finding.since, Some(Duration::from_secs(since)), "{last:?}");
        }
        let (record, now) = hanging_for(Duration::from_secs(9), State::Failed);
        assert_eq!(record.finding(&check, now).error.as_deref(), Some("no route"));
    }
}
