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
use crate::shared::Shared;
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
    let collector = Collector::new(returns, (length / tick / INTERVALS).max(1));
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
        let collected = collector.run(
            &slices,
            &mut WarmUpObserver { progress: &mut progress, plan, before: &mut before },
        );
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
    let threads = threads.map_err(|error| format!("a thread of the client failed: {error}"))?;
    if let Some(reason) = shared.refusal() {
        return Err(format!("cannot connect to {}: {reason}", plan.address));
    }
    let (Some(collected), Some(cpu)) = (collected, cpu) else {
        return Err("no figures were collected".to_owned());
    };
    Ok(Run::new(plan, collected, &threads, cpu, tick))
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
struct WarmUpObserver<'a> {
    progress: &'a mut Progress,
    plan: &'a Plan,
    before: &'a mut CpuUsed,
}

impl Observer for WarmUpObserver<'_> {
    fn update(&mut self, live: &Live) {
        if live.is_warm_up && !self.plan.warmup.is_zero() {
            self.before.client = CpuTime::own();
            self.before.server = self.plan.server.and_then(CpuTime::of);
        }
        self.progress.update(live);
    }
}
