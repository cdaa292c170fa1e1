//! Measures one call: how long it took, and how long its thread waited.
//!
//! A preempted thread does not wait: it is ready to run while others run. So the wall time minus
//! the thread's CPU time is only an upper bound of its wait. Linux reports how long a thread was
//! ready without a processor in `/proc/thread-self/schedstat`. Leaders read that file. Threads of
//! the pool do not, because each would need a descriptor for it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::policy::{CallTimes, Others, Sample};
use super::stuck::slot::ThreadSlot;

/// A thread of the pool samples one in this many calls closely.
pub(crate) const CALLS_PER_CLOSE_SAMPLE: u32 = 16;

/// The minimum time over which the wait of a leader for a processor is measured.
const IN_LINE_MIN: Duration = Duration::from_millis(1);

/// The clocks of one thread. Only that thread uses them.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    delay: RunQueueDelay,
    /// When the delay was last read for [`Clocks::in_line`], and what it was.
    delay_read: Option<(Instant, Duration)>,
    samples: PoolSamples,
    /// The measurement of the running call on a loop.
    look: Option<Look>,
    /// The CPU time of the thread when it was last read, while the thread leads.
    last_read: Option<Duration>,
    /// The last call, if it was measured for its exchange.
    pub(crate) measured: Option<Measured>,
    /// Where the detector finds the call that the thread runs.
    slot: Option<Arc<ThreadSlot>>,
}

/// Which calls of a thread of the pool are samples. Dispatches are counted like calls.
///
/// Of each [`CALLS_PER_CLOSE_SAMPLE`] calls, one is a sample, at a random place. So every call has
/// the same chance. With a fixed interval, clients that alternate between routes could cause only
/// the calls of one route to be sampled. The first call of a thread is an additional sample, which
/// is always taken and stands for itself only.
#[derive(Debug, Default)]
struct PoolSamples {
    /// Calls until the next sample.
    left: u32,
    /// How many of the sixteen calls come after that sample.
    after: u32,
    /// The state of the random numbers. `None` before the first call.
    chance: Option<u32>,
}

/// A measurement of a call on a loop.
#[derive(Debug)]
struct Look {
    probe: Probe,
    sample: Option<LoopSample>,
    /// `None` until the call has returned.
    took: Option<CallTimes>,
}

/// What is known of a call on a loop that is a sample for the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopSample {
    /// The other demand for the loop when the call began.
    pub(crate) others: Others,
    /// How many calls it stands for.
    pub(crate) stands_for: u32,
}

/// A call that was measured for its exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) started: Instant,
    pub(crate) took: CallTimes,
    /// How many calls it stands for.
    pub(crate) stands_for: u32,
    /// Whether the watchdog took the loop from it.
    pub(crate) was_caught: bool,
}

/// A running measurement.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) started: Instant,
    before: Option<ThreadTimes>,
}

/// The times of a thread since its start.
#[derive(Clone, Copy, Debug)]
struct ThreadTimes {
    on_processor: Duration,
    in_run_queue: Duration,
}

impl Clocks {
    /// Begins a measurement.
    pub(crate) fn begin(&self, sample: Sample) -> Probe {
        let before = if sample == Sample::Close { self.spent() } else { None };
        Probe { started: Instant::now(), before }
    }

    /// Ends a measurement.
    pub(crate) fn end(&self, probe: &Probe) -> CallTimes {
        let wall = probe.started.elapsed();
        let spent = probe.before.zip(self.spent_since(probe));
        let ran =
            spent.map(|(before, after)| after.on_processor.saturating_sub(before.on_processor));
        let waited = spent.zip(ran).map(|((before, after), ran)| {
            let queued = after.in_run_queue.saturating_sub(before.in_run_queue);
            wall.saturating_sub(ran + queued)
        });
        CallTimes { wall, waited, ran }
    }

    /// Begins to measure a call on a loop.
    pub(crate) fn begin_look(&mut self, how: Sample, sample: Option<LoopSample>) {
        self.look = Some(Look { probe: self.begin(how), sample, took: None });
    }

    /// Called when the call has returned, before its thread takes the loop back.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_look(&mut self) {
        let Some(look) = &self.look else { return };
        let took = self.end(&look.probe);
        if let (Some(before), Some(ran)) = (&look.probe.before, took.ran) {
            self.last_read = Some(before.on_processor + ran);
        }
        if let Some(look) = &mut self.look {
            look.took = Some(took);
        }
    }

    /// Returns the maximum time for which a call that has just returned, and was no sample, can
    /// have computed: the CPU time since the last sample, which includes some quick calls before
    /// it. `None` if it is not known.
    pub(crate) fn ran_at_most(&self) -> Option<Duration> {
        on_processor()?.checked_sub(self.last_read?)
    }

    /// Takes the measurement of a call on a loop that has returned: when it started, its times, and
    /// what is known of it if it is a sample for the policy.
    pub(crate) fn take_look(&mut self) -> Option<(Instant, CallTimes, Option<LoopSample>)> {
        let Look { probe, sample, took } = self.look.take()?;
        Some((probe.started, took?, sample))
    }

    /// Begins to measure a call on the pool. It does not read the run queue delay.
    pub(crate) fn begin_on_pool(&self, is_close: bool) -> Probe {
        let before = if is_close { on_processor() } else { None };
        let before =
            before.map(|on_processor| ThreadTimes { on_processor, in_run_queue: Duration::ZERO });
        Probe { started: Instant::now(), before }
    }

    /// Ends the measurement of a call on the pool.
    pub(crate) fn end_on_pool(&self, probe: &Probe) -> CallTimes {
        let wall = probe.started.elapsed();
        let ran = probe
            .before
            .and_then(|before| Some(on_processor()?.saturating_sub(before.on_processor)));
        CallTimes { wall, waited: ran.map(|ran| wall.saturating_sub(ran)), ran }
    }

    /// Counts a call or a dispatch. If it is a sample, returns how many it stands for. The first
    /// one always is.
    pub(crate) fn next_pool_sample(&mut self) -> Option<u32> {
        self.samples.next()
    }

    /// Returns how long the thread stood in line for a processor since the last answer, and how
    /// long ago that was. `None` if that was just now, if the thread does not lead, or if the
    /// system does not say.
    pub(crate) fn in_line(&mut self, now: Instant) -> Option<(Duration, Duration)> {
        let last = self.delay_read;
        let elapsed = last.map(|(at, _)| now.saturating_duration_since(at));
        if elapsed.is_some_and(|elapsed| elapsed < IN_LINE_MIN) {
            return None;
        }
        let total = self.delay.total()?;
        self.delay_read = Some((now, total));
        let (_, before) = last?;
        Some((total.saturating_sub(before), elapsed?))
    }

    /// Returns the clocks for a thread that begins to lead. They hold one descriptor more.
    pub(crate) fn with_run_queue(self) -> Self {
        Self { delay: RunQueueDelay::of_this_thread(), last_read: on_processor(), ..self }
    }

    /// Returns the clocks for a thread that no longer leads.
    pub(crate) fn without_run_queue(self) -> Self {
        Self { delay: RunQueueDelay::default(), delay_read: None, last_read: None, ..self }
    }

    /// Returns the system's id of the current thread, or 0.
    pub(crate) fn thread(&self) -> u32 {
        thread_number()
    }

    /// Returns the place where the detector finds the call that the current thread runs.
    pub(crate) fn slot(&mut self) -> &Arc<ThreadSlot> {
        self.slot.get_or_insert_with(|| ThreadSlot::of_this_thread(thread_number))
    }

    fn spent_since(&self, probe: &Probe) -> Option<ThreadTimes> {
        probe.before?;
        self.spent()
    }

    fn spent(&self) -> Option<ThreadTimes> {
        let in_run_queue = self.delay.total().unwrap_or_default();
        Some(ThreadTimes { on_processor: on_processor()?, in_run_queue })
    }
}

impl PoolSamples {
    fn next(&mut self) -> Option<u32> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        let stands_for = if self.chance.is_none() { 1 } else { CALLS_PER_CLOSE_SAMPLE };
        // Each thread begins with another number. Otherwise the same calls of all new threads would
        // be samples. The constants are those of Numerical Recipes, section 7.1.
        let chance = self.chance.unwrap_or_else(random);
        let chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.chance = Some(chance);
        let place = chance >> 16 & (CALLS_PER_CLOSE_SAMPLE - 1);
        self.left = self.after + place;
        self.after = CALLS_PER_CLOSE_SAMPLE - 1 - place;
        Some(stands_for)
    }
}

/// Returns a number that differs between threads.
#[cold]
fn random() -> u32 {
    // The keys of the standard library's hash maps are random.
    u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0)
}

/// Returns whether a thread of this process runs or is ready to run. `None` if the system does not
/// say.
#[cfg(target_os = "linux")]
pub(crate) fn is_at_work(thread: u32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name before the state is in brackets, and may contain brackets.
    let (_, behind_name) = stat.rsplit_once(") ")?;
    Some(behind_name.starts_with('R'))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_at_work(_thread: u32) -> Option<bool> {
    None
}

/// Returns the system's id of the current thread, or 0.
#[cfg(target_os = "linux")]
pub(crate) fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_number() -> u32 {
    0
}

/// Returns the CPU time of the current thread.
#[cfg(unix)]
pub(crate) fn on_processor() -> Option<Duration> {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(test)]
    if tests::HAS_NO_CLOCK.get() {
        return None;
    }
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(not(unix))]
pub(crate) fn on_processor() -> Option<Duration> {
    None
}

/// The source of the time for which the current thread was ready without a processor.
#[derive(Debug, Default)]
struct RunQueueDelay {
    /// `None` while the thread does not lead, and on systems without this file: other kernels, or a
    /// sandbox without `/proc`.
    #[cfg(target_os = "linux")]
    file: Option<std::fs::File>,
}

#[cfg(target_os = "linux")]
impl RunQueueDelay {
    fn of_this_thread() -> Self {
        Self { file: std::fs::File::open("/proc/thread-self/schedstat").ok() }
    }

    fn total(&self) -> Option<Duration> {
        use std::os::unix::fs::FileExt;

        let mut text = [0; 64];
        let read = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        second_number(text.get(..read)?).map(Duration::from_nanos)
    }
}

#[cfg(not(target_os = "linux"))]
impl RunQueueDelay {
    fn of_this_thread() -> Self {
        Self::default()
    }

    fn total(&self) -> Option<Duration> {
        None
    }
}

/// Returns the second of three numbers, which is the run queue delay. The parser is written by hand
/// because it runs twice per close sample.
#[cfg(target_os = "linux")]
fn second_number(text: &[u8]) -> Option<u64> {
    let second = text.iter().position(|&byte| byte == b' ')? + 1;
    let mut number: Option<u64> = None;
    for &byte in text.get(second..)? {
        match byte {
            b'0'..=b'9' => {
                number =
                    Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(byte - b'0'))?);
            }
            b' ' => return number,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests;
