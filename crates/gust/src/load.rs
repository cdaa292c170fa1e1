//! Starts the threads of a run, collects their results, and merges them.

use std::io;
use std::sync::mpsc;
use std::thread;

use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::blocking;
use crate::collector::{Collector, Live, Observer};
use crate::cpu::CpuTime;
use crate::outbox::{Delivery, Finished, Outbox};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::run::{CpuUsed, Run};
use crate::shared::{Clock, Shared};
use crate::tally::Slice;
use crate::units::{MILLISECOND, Nanos, nanos};
use crate::worker;

/// How often a thread sends a slice to the collector.
const TICK: Nanos = 100 * MILLISECOND;

/// With more threads than this, each sends slices less often, because the collector has to read a
/// quarter of a megabyte per slice.
const THREADS_AT_FULL_TICK: usize = 8;

/// The approximate number of intervals in a timeline.
const INTERVALS: u64 = 200;

/// Runs a plan.
pub(crate) fn run(plan: &Plan, is_quiet: bool) -> Result<Run, String> {
    if let Some(process) = plan.server.filter(|&process| CpuTime::of(process).is_none()) {
        return Err(format!("cannot read the CPU time of process {process} (--server-pid)"));
    }
    allow_many_sockets();
    let tick = TICK * plan.threads.div_ceil(THREADS_AT_FULL_TICK) as u64;
    let length = plan.end.after.map_or(0, nanos);
    let shared = Shared::new(plan);
    let mut progress = Progress::new(plan, is_quiet);
    let signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| format!("cannot watch for signals: {error}"))?;
    let stopper = signals.handle();
    let (sender, slices) = mpsc::channel();
    let (returns, returned): (Vec<_>, Vec<_>) = (0..plan.threads).map(|_| mpsc::channel()).unzip();
    let collector = Collector::new(returns, ticks_per_interval(length, tick));
    let (threads, collected, cpu) = thread::scope(|scope| {
        let mut signals = signals;
        let shared = &shared;
        scope.spawn(move || signals.forever().for_each(|_| shared.stop()));
        let threads = match start(scope, plan, shared, &sender, returned, tick) {
            Ok(threads) => threads,
            Err(error) => {
                shared.stop();
                stopper.close();
                return (Err(error), None, None);
            }
        };
        drop(sender);
        let mut before =
            CpuUsed { client: CpuTime::own(), server: plan.server.and_then(CpuTime::of) };
        let collected = collector
            .run(&slices, &mut WarmUpObserver::new(&mut progress, plan, shared.clock, &mut before));
        let server = plan.server.and_then(CpuTime::of).zip(before.server);
        let cpu = CpuUsed {
            client: CpuTime::own().since(before.client),
            server: server.map(|(after, before)| after.since(before)),
        };
        stopper.close();
        let threads: io::Result<Vec<Finished>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client does not panic"))
            .collect();
        (threads, Some(collected), Some(cpu))
    });
    drop(progress);
    let mut threads = threads.map_err(|error| format!("a thread of the client failed: {error}"))?;
    limit_never_sent(&mut threads, shared.left());
    if let Some(reason) = shared.refusal() {
        return Err(format!("cannot connect to {}: {reason}", plan.address));
    }
    let (Some(collected), Some(cpu)) = (collected, cpu) else {
        return Err("no figures were collected".to_owned());
    };
    Ok(Run::new(plan, collected, &threads, cpu, tick))
}

/// Limits the requests that were due and never sent to the number that was `left`: a schedule has
/// no end, but `-n` is one.
fn limit_never_sent(threads: &mut [Finished], mut left: u64) {
    for thread in threads {
        thread.never_sent = thread.never_sent.min(left);
        left -= thread.never_sent;
    }
}

/// Starts the threads that make the load.
fn start<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    plan: &'scope Plan,
    shared: &'scope Shared,
    sender: &mpsc::Sender<Delivery>,
    returned: Vec<mpsc::Receiver<Box<Slice>>>,
    tick: Nanos,
) -> io::Result<Vec<thread::ScopedJoinHandle<'scope, io::Result<Finished>>>> {
    let numbered = returned.into_iter().enumerate();
    let start_one = |(index, returned)| {
        let outbox = Outbox::new(index, sender.clone(), returned, tick, nanos(plan.warmup));
        let builder = thread::Builder::new().name(format!("gust-{index}"));
        builder.spawn_scoped(scope, move || {
            if plan.is_blocking {
                Ok(blocking::run(plan, shared, index, outbox))
            } else {
                worker::run(plan, shared, index, outbox)
            }
        })
    };
    numbered.map(start_one).collect()
}

/// Returns how many ticks an interval of the timeline has. `length` is 0 if the run has no end.
fn ticks_per_interval(length: Nanos, tick: Nanos) -> u64 {
    (length / tick / INTERVALS).max(1)
}

/// Raises the limit of open files as far as the system allows. If it is still too low, connects
/// fail and are counted.
fn allow_many_sockets() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Passes updates on, and reads the CPU times at the end of the warm-up.
///
/// The clock tells when that is. The slices do not: the next ones come a tick later, and a thread
/// that is late still delivers its last slice of the warm-up when others have counted for a while.
struct WarmUpObserver<'a> {
    progress: &'a mut Progress,
    plan: &'a Plan,
    clock: Clock,
    before: &'a mut CpuUsed,
    /// Whether an update came after the warm-up, so that the CPU times before it are known.
    is_over: bool,
}

impl<'a> WarmUpObserver<'a> {
    fn new(
        progress: &'a mut Progress,
        plan: &'a Plan,
        clock: Clock,
        before: &'a mut CpuUsed,
    ) -> Self {
        Self { progress, plan, clock, before, is_over: plan.warmup.is_zero() }
    }

    /// Reads the CPU times at each update up to the first one after the warm-up. That one comes at
    /// once, because every thread delivers a slice at the end of the warm-up. The earlier ones are
    /// for a run that is stopped before.
    fn read_times(&mut self, now: Nanos) {
        if self.is_over {
            return;
        }
        self.is_over = now >= nanos(self.plan.warmup);
        self.before.client = CpuTime::own();
        self.before.server = self.plan.server.and_then(CpuTime::of);
    }
}

impl Observer for WarmUpObserver<'_> {
    fn update(&mut self, live: &Live) {
        self.read_times(self.clock.now());
        self.progress.update(live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::histogram::Histogram;

    #[test]
    fn a_timeline_has_some_two_hundred_intervals_of_at_least_a_tick() {
        let of = |ticks: u64| ticks_per_interval(ticks * TICK, TICK);
        assert_eq!([0, 1, 199, 200, 399].map(of), [1; 5]);
        assert_eq!([400, 2000, 2199, 360_000].map(of), [2, 10, 10, 1800]);
        assert_eq!(ticks_per_interval(4000 * TICK, 2 * TICK), 10);
    }

    #[test]
    fn requests_beyond_the_number_of_the_run_are_not_missing() {
        let thread = |never_sent| Finished {
            served: Vec::new(),
            opened: Vec::new(),
            held: 0,
            unanswered: 0,
            never_sent,
            longest_wait: 0,
            thread: crate::cpu::Spent { cpu: 0, waited: 0, elapsed: 1 },
            ended: 0,
        };
        let limited = |left| {
            let mut threads = [3, 0, 5].map(thread);
            limit_never_sent(&mut threads, left);
            threads.map(|thread| thread.never_sent)
        };
        assert_eq!([0, 2, 7, 9].map(limited), [[0; 3], [2, 0, 0], [3, 0, 4], [3, 0, 5]]);
    }

    #[test]
    fn the_cpu_time_of_the_warm_up_is_what_the_first_update_after_it_says() {
        let nothing = CpuTime { user: 0.0, system: 0.0 };
        let reads_at = |arguments: &str, times: [Nanos; 4]| {
            let plan = args::plan(arguments).expect("it is valid");
            let shared = Shared::new(&plan);
            let mut before = CpuUsed { client: nothing, server: None };
            let mut progress = Progress::new(&plan, true);
            let mut observer = WarmUpObserver::new(&mut progress, &plan, shared.clock, &mut before);
            times.map(|now| {
                observer.before.client = nothing;
                observer.read_times(now);
                observer.before.client.total() > 0.0
            })
        };
        let tick = TICK;
        assert_eq!(
            reads_at(":1 --warmup 200ms", [tick, 2 * tick - 1, 2 * tick, 2 * tick + 1]),
            [true, true, true, false]
        );
        // No update came at the end of the warm-up.
        assert_eq!(
            reads_at(":1 --warmup 200ms", [tick, 3 * tick, 3 * tick, 4 * tick]),
            [true, true, false, false]
        );
        assert_eq!(reads_at(":1 --warmup 0s", [0, 1, tick, 2 * tick]), [false; 4]);
    }

    #[test]
    fn a_late_slice_of_the_warm_up_reads_no_cpu_time_again() {
        let nothing = CpuTime { user: 0.0, system: 0.0 };
        let plan = args::plan(":1 --warmup 1us").expect("it is valid");
        let shared = Shared::new(&plan);
        let mut before = CpuUsed { client: nothing, server: None };
        let mut progress = Progress::new(&plan, true);
        let live = Live {
            is_warm_up: true,
            responses: 0,
            errors: 0,
            latency: Histogram::new(),
            responses_total: 0,
            errors_total: 0,
        };
        let mut observer = WarmUpObserver::new(&mut progress, &plan, shared.clock, &mut before);
        while shared.clock.now() < nanos(plan.warmup) {
            std::hint::spin_loop();
        }
        let reads = [(); 2].map(|()| {
            observer.before.client = nothing;
            observer.update(&live);
            observer.before.client.total() > 0.0
        });
        assert_eq!(reads, [true, false]);
    }
}
