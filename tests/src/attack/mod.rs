//! A site under attack, and good clients that measure before, during and after the attack.
//!
//! Attackers connect from other addresses than the good clients: from 127.0.0.2 on, which Linux
//! supports without configuration.

mod crowd;
mod good;
mod live;
mod site;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Metrics, ServerConfig};

pub use crowd::Crowd;
pub use good::{Answers, Good};
pub use live::{Live, UPGRADE};
pub use site::Site;

/// How long the good clients measure without an attack.
const QUIET: Duration = Duration::from_millis(160);

/// Maximum 99th percentile of quick responses, in addition to the noise of the machine. Without
/// optimisation, the engine needs several times as long for the bytes of an attack.
const P99_MAX: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 20 });

/// With this much noise or more, other programs had the processors for longer than a call may run.
const DISTURBED: Duration = Duration::from_millis(60);

/// Maximum 99th percentile of quick responses, however busy the machine is.
const BUSY_P99_MAX: Duration = Duration::from_millis(250);

/// Maximum time of any response, including those of a route that blocks for 50 ms.
const LONGEST: Duration = Duration::from_secs(2);

/// Maximum number of additional threads during an attack. The last few are for leaders.
const THREADS_MORE_MAX: usize = 64 + 8;

/// How many times an attack is tried if its only defect is a late response. Another program may
/// have had the processor, but not each time.
const TRIES: usize = 3;

/// Maximum time until the server is as before.
const RECOVERY_MAX: Duration = Duration::from_secs(2);

/// An attack, and its maximum cost.
#[derive(Clone, Debug)]
pub struct Attack {
    name: &'static str,
    threads_max: usize,
    newcomers_wait_more: Duration,
    unsent_max: usize,
    memory_max: Option<usize>,
    connections_max: Option<usize>,
}

impl Attack {
    /// Returns an attack that may cost 64 threads and must delay no client.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            threads_max: THREADS_MORE_MAX,
            newcomers_wait_more: Duration::ZERO,
            unsent_max: 0,
            memory_max: None,
            connections_max: None,
        }
    }

    /// Sets the maximum number of additional threads.
    #[must_use]
    pub fn may_cost_threads(mut self, threads: usize) -> Self {
        self.threads_max = threads;
        self
    }

    /// Sets how much longer responses over new connections may take, for attacks on connections.
    #[must_use]
    pub fn newcomers_may_wait(mut self, time: Duration) -> Self {
        self.newcomers_wait_more = time;
        self
    }

    /// Sets how far the server may exceed its memory budget, by responses that handlers had made
    /// before it was known that they would not be read.
    #[must_use]
    pub fn may_leave_unread(mut self, bytes: usize) -> Self {
        self.unsent_max = bytes;
        self
    }

    /// Sets the server's memory budget.
    #[must_use]
    pub fn memory_max(mut self, bytes: usize) -> Self {
        self.memory_max = Some(bytes);
        self
    }

    /// Sets the server's maximum number of connections.
    #[must_use]
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = Some(connections);
        self
    }

    /// Attacks a server with the default configuration, and one with the strict configuration. The
    /// result of `attack`, usually the attackers, is kept until the good clients have measured.
    #[track_caller]
    pub fn is_withstood<T>(&self, attack: impl Fn(&Site) -> T) {
        let _alone = crate::one_at_a_time();
        for (name, config) in
            [("default", ServerConfig::default()), ("strict", ServerConfig::strict())]
        {
            let mut config = config;
            if let Some(bytes) = self.memory_max {
                config = config.memory_max(bytes);
            }
            if let Some(connections) = self.connections_max {
                config = config.connections_max(connections);
            }
            for tries_left in (0..TRIES).rev() {
                let report = Report::of(&Site::start(config.clone()), &attack);
                println!("{}, {name}: {report}", self.name);
                let Err(defect) = report.check(self) else { break };
                let may_retry = defect.is_late && tries_left > 0;
                assert!(may_retry, "{}, {name}: {}\n{report}", self.name, defect.what);
                println!("{}, {name}: again, because {}", self.name, defect.what);
            }
        }
    }
}

/// The measurements of one attack.
#[derive(Debug)]
struct Report {
    before: Answers,
    during: Answers,
    after: Answers,
    lasted: Duration,
    threads_before: usize,
    /// The maximum number of threads.
    threads: usize,
    memory: usize,
    memory_max: usize,
    /// How long the server took to recover.
    recovery: Option<Duration>,
    metrics: Metrics,
}

impl Report {
    fn of<T>(site: &Site, attack: impl Fn(&Site) -> T) -> Self {
        let busy = |metrics: &Metrics| metrics.pool.threads - metrics.pool.idle;
        // The first responses of a process are slow, and start the threads that it needs.
        Good::start(site.address()).ask_for(QUIET);
        let before = Good::start(site.address()).ask_for(QUIET);
        crate::eventually("all connections are closed", || site.metrics().connections == 0);
        let quiet = site.metrics();
        let started = Instant::now();
        let good = Good::start(site.address());
        let (peaks, attackers) = Peaks::during(site, || attack(site));
        let during = good.stop();
        let lasted = started.elapsed();
        let ended = Instant::now();
        drop(attackers);
        site.let_go();
        let is_as_before = || {
            let now = site.metrics();
            let is_empty = (now.connections, now.memory_used, now.waiting) == (0, 0, 0);
            is_empty && busy(&now) <= busy(&quiet)
        };
        let mut recovery = None;
        // Measures beyond the maximum, so that a failure reports the time.
        while recovery.is_none() && ended.elapsed() < RECOVERY_MAX * 3 {
            recovery = is_as_before().then(|| ended.elapsed());
            thread::sleep(Duration::from_millis(2));
        }
        let after = Good::start(site.address()).ask_for(QUIET);
        Self {
            before,
            during,
            after,
            lasted,
            threads_before: quiet.pool.threads,
            threads: peaks.threads,
            memory: peaks.memory,
            memory_max: quiet.memory_max,
            recovery,
            metrics: site.metrics(),
        }
    }

    fn check(&self, attack: &Attack) -> Result<(), Defect> {
        if self.threads > self.threads_before + attack.threads_max {
            let (most, before) = (self.threads, self.threads_before);
            // If other programs keep a thread from running, the watchdog gives its loop to another
            // thread.
            let is_late = self.during.noise() > DISTURBED;
            let what = format!("{most} threads where {before} were enough");
            return Err(Defect { what, is_late });
        }
        let memory_max = self.memory_max + attack.unsent_max;
        if self.memory > memory_max {
            let memory = self.memory;
            return Err(Defect::cost(format!(
                "{memory} bytes of memory where {memory_max} may be"
            )));
        }
        for (when, answers) in
            [("before", &self.before), ("during", &self.during), ("after", &self.after)]
        {
            let p99_max = (P99_MAX + answers.noise()).min(BUSY_P99_MAX);
            let more = if when == "during" { attack.newcomers_wait_more } else { Duration::ZERO };
            answers.check(p99_max, p99_max + more, LONGEST).map_err(|defect| Defect {
                what: format!("{when} the attack {}", defect.what),
                ..defect
            })?;
        }
        match self.recovery {
            Some(took) if took <= RECOVERY_MAX => Ok(()),
            Some(took) => Err(Defect::late(format!("it was as before after {took:?}"))),
            None => Err(Defect::cost(format!("it was never as before: {:?}", self.metrics))),
        }
    }
}

/// What is wrong with a report.
#[derive(Debug)]
struct Defect {
    what: String,
    is_late: bool,
}

impl Defect {
    fn cost(what: String) -> Self {
        Self { what, is_late: false }
    }

    fn late(what: String) -> Self {
        Self { what, is_late: true }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusals: Vec<_> = self.metrics.refusals().collect();
        writeln!(
            f,
            "{:.1?}, threads {} -> {}, memory {} KiB, shed {}, as before in {:.0?}, {refusals:?}",
            self.lasted,
            self.threads_before,
            self.threads,
            self.memory / 1024,
            self.metrics.connections_shed,
            self.recovery
        )?;
        writeln!(f, "    before {}", self.before)?;
        writeln!(f, "    during {}", self.during)?;
        write!(f, "    after  {}", self.after)
    }
}

/// The maximum values during an attack.
#[derive(Debug, Default)]
struct Peaks {
    threads: usize,
    memory: usize,
}

impl Peaks {
    fn during<T>(site: &Site, run: impl FnOnce() -> T) -> (Self, T) {
        let (threads, memory) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let is_over = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let now = site.metrics();
                    threads.fetch_max(now.pool.threads, Ordering::Relaxed);
                    memory.fetch_max(now.memory_used, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let ends = EndsWhenDropped(&is_over);
            let result = run();
            drop(ends);
            result
        });
        (Self { threads: threads.into_inner(), memory: memory.into_inner() }, result)
    }
}

/// Ends the measuring thread even if the attack panics.
struct EndsWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
