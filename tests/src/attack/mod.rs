//! A site under attack, and good clients beside: what they see before it, during it and after it.
//!
//! Attackers come from other addresses than the good clients, as a crowd does: 127.0.0.2 and up,
//! which Linux has without being told.

mod crowd;
mod good;
mod site;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Metrics, ServerConfig};

pub use crowd::Crowd;
pub use good::{Answers, Good};
pub use site::Site;

/// How long the good clients ask when nobody disturbs them.
const QUIET: Duration = Duration::from_millis(160);

/// What the answers to a quick request may take in 99 of 100 cases. On a quiet machine it is 20 ms;
/// this is for one that is busy with other tests.
const P99_MAX: Duration = Duration::from_millis(250);

/// What an answer may take at most, of a route that blocks for 50 ms too.
const LONGEST: Duration = Duration::from_secs(2);

/// How many threads an attack may cost; the last few are for leaders.
const THREADS_MORE_MAX: usize = 64 + 8;

/// By when the server is as before.
const RECOVERY_MAX: Duration = Duration::from_secs(2);

/// An attack, and what it may cost.
#[derive(Clone, Debug)]
pub struct Attack {
    name: &'static str,
    threads_max: usize,
    newcomers_wait_max: Duration,
    unsent_max: usize,
    memory_max: Option<usize>,
    connections_max: Option<usize>,
}

impl Attack {
    /// An attack that may cost 64 threads, and delay nobody.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            threads_max: THREADS_MORE_MAX,
            newcomers_wait_max: P99_MAX,
            unsent_max: 0,
            memory_max: None,
            connections_max: None,
        }
    }

    /// Sets how many threads more than before there may be.
    #[must_use]
    pub fn may_cost_threads(mut self, threads: usize) -> Self {
        self.threads_max = threads;
        self
    }

    /// Sets how long new connections may wait for their answers, in 99 of 100 cases: where
    /// connections are what is attacked.
    #[must_use]
    pub fn newcomers_may_wait(mut self, time: Duration) -> Self {
        self.newcomers_wait_max = time;
        self
    }

    /// Sets how far the server may go beyond its memory: by responses that handlers made before
    /// anybody knew that they would not be read.
    #[must_use]
    pub fn may_leave_unread(mut self, bytes: usize) -> Self {
        self.unsent_max = bytes;
        self
    }

    /// Has the server buffer no more than so many bytes.
    #[must_use]
    pub fn memory_max(mut self, bytes: usize) -> Self {
        self.memory_max = Some(bytes);
        self
    }

    /// Has the server hold no more than so many connections.
    #[must_use]
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = Some(connections);
        self
    }

    /// Attacks a server with the default configuration, and a strict one. What `attack` returns, as
    /// a rule the attackers, is kept until the good clients have been asked.
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
            let report = Report::of(&Site::start(config), &attack);
            println!("{}, {name}: {report}", self.name);
            if let Err(defect) = report.check(self) {
                panic!("{}, {name}: {defect}\n{report}", self.name);
            }
        }
    }
}

/// What was seen of one attack.
#[derive(Debug)]
struct Report {
    before: Answers,
    during: Answers,
    after: Answers,
    lasted: Duration,
    threads_before: usize,
    /// The most there were at once.
    threads: usize,
    memory: usize,
    memory_max: usize,
    /// How long it took until everything was as before.
    recovery: Option<Duration>,
    metrics: Metrics,
}

impl Report {
    fn of<T>(site: &Site, attack: impl Fn(&Site) -> T) -> Self {
        let busy = |metrics: &Metrics| metrics.pool.threads - metrics.pool.idle;
        // The first answers of a program are slow, and start the threads that it needs.
        Good::start(site.address()).ask_for(QUIET);
        let before = Good::start(site.address()).ask_for(QUIET);
        crate::eventually("nobody is there", || site.metrics().connections == 0);
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
        // Longer than it may take, so that a failure says how long it took.
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

    fn check(&self, attack: &Attack) -> Result<(), String> {
        for (when, answers) in
            [("before", &self.before), ("during", &self.during), ("after", &self.after)]
        {
            let newcomers_max = if when == "during" { attack.newcomers_wait_max } else { P99_MAX };
            answers
                .check(P99_MAX, newcomers_max, LONGEST)
                .map_err(|defect| format!("{when} the attack {defect}"))?;
        }
        if self.threads > self.threads_before + attack.threads_max {
            return Err(format!(
                "{} threads where {} were enough",
                self.threads, self.threads_before
            ));
        }
        if self.memory > self.memory_max + attack.unsent_max {
            return Err(format!(
                "{} bytes of memory where {} may be",
                self.memory, self.memory_max
            ));
        }
        match self.recovery {
            Some(took) if took <= RECOVERY_MAX => Ok(()),
            took => Err(format!("it was as before after {took:?}: {:?}", self.metrics)),
        }
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

/// The most that there was of something at once.
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

/// A panic in the attack ends the thread beside it too.
struct EndsWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
