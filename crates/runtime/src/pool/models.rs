//! Models of the pool's hand-overs under loom: every interleaving within a bound on preemptions.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//!     cargo test -p filoplume-runtime --lib models --release
//! ```
//!
//! Each model ends with a close and a join that never times out. A lost wake-up is a deadlock,
//! which loom reports. Then all accepted tasks must have run. Deadlines may pass at any moment, see
//! `crate::sync`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use loom::thread;

use super::spawn::{ThreadStart, start_thread};
use super::{Pool, PoolConfig};

/// A pool whose tasks only count themselves. The counters are std's, so that loom does not branch
/// on them.
struct Counted {
    pool: Pool<()>,
    ran: Arc<AtomicUsize>,
}

impl Counted {
    fn new(config: PoolConfig) -> Self {
        Self::with_failing_starts(config, 0)
    }

    /// Makes the first starts of a thread fail.
    fn with_failing_starts(config: PoolConfig, failing: usize) -> Self {
        let ran = Arc::new(AtomicUsize::new(0));
        let starts = AtomicUsize::new(0);
        let spawner = move |start: ThreadStart| {
            if starts.fetch_add(1, Ordering::SeqCst) < failing {
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            start_thread(start)
        };
        let counter = Arc::clone(&ran);
        let run = move |()| _ = counter.fetch_add(1, Ordering::SeqCst);
        Self { pool: Pool::with_spawner(config, Box::new(spawner), run), ran }
    }

    fn submit_elsewhere(&self) -> thread::JoinHandle<usize> {
        let pool = self.pool.clone();
        thread::spawn(move || usize::from(pool.submit(()).is_ok()))
    }

    #[track_caller]
    fn ends_after(self, taken: usize) {
        self.pool.close();
        assert!(self.pool.join(Instant::now()), "a closed pool ends with no task left");
        assert_eq!(self.ran.load(Ordering::SeqCst), taken, "every accepted task ran once");
        let metrics = self.pool.metrics();
        assert_eq!((metrics.threads, metrics.idle, metrics.queued), (0, 0, 0));
        assert_eq!(metrics.threads_started, metrics.threads_retired);
    }
}

fn small() -> PoolConfig {
    PoolConfig::new().threads_max(1).queue_capacity(1)
}

#[allow(clippy::print_stdout, reason = "`--nocapture` shows the number of interleavings")]
fn explore(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let interleavings = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&interleavings);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{name}: {} interleavings", interleavings.load(Ordering::Relaxed));
}

#[test]
fn submit_against_idle_expiry() {
    explore("submit against idle expiry", 6, || {
        let counted = Counted::new(small());
        let taken = usize::from(counted.pool.submit(()).is_ok())
            + usize::from(counted.pool.submit(()).is_ok());
        assert_eq!(taken, 2, "there is a worker, or room for one, or room in the queue");
        counted.ends_after(taken);
    });
}

#[test]
fn two_submits_against_one_idle_worker() {
    explore("two submits against one idle worker", 3, || {
        let counted = Counted::new(small().threads_min(1).threads_max(2));
        counted.pool.submit(()).unwrap();
        let elsewhere = counted.submit_elsewhere();
        let here = usize::from(counted.pool.submit(()).is_ok());
        let taken = 1 + here + elsewhere.join().unwrap();
        assert_eq!(taken, 3);
        counted.ends_after(taken);
    });
}

#[test]
fn submit_against_close() {
    explore("submit against close", 5, || {
        let counted = Counted::new(small().threads_min(1));
        counted.pool.submit(()).unwrap();
        let elsewhere = counted.submit_elsewhere();
        counted.pool.close();
        let taken = 1 + elsewhere.join().unwrap();
        counted.ends_after(taken);
    });
}

#[test]
fn reservation_dropped_against_submit() {
    explore("reservation dropped against submit", 4, || {
        let counted = Counted::new(small());
        let reservation = counted.pool.reserve().unwrap();
        let elsewhere = counted.submit_elsewhere();
        drop(reservation);
        let taken = elsewhere.join().unwrap();
        counted.ends_after(taken);
    });
}

#[test]
fn reservation_of_an_idle_worker_run_against_its_expiry() {
    explore("reservation run against expiry and close", 4, || {
        let counted = Counted::new(small().urgent_reserve(1));
        counted.pool.submit(()).unwrap();
        let reservation = counted.pool.reserve().unwrap();
        let pool = counted.pool.clone();
        let closer = thread::spawn(move || pool.close());
        reservation.run(());
        closer.join().unwrap();
        counted.ends_after(2);
    });
}

#[test]
fn finish_against_submit() {
    explore("finish against submit", 4, || {
        let counted = Counted::new(small().threads_min(1));
        counted.pool.submit(()).unwrap();
        let elsewhere = counted.submit_elsewhere();
        let here = usize::from(counted.pool.submit(()).is_ok());
        let taken = 1 + here + elsewhere.join().unwrap();
        assert!(taken >= 2, "one worker and one place in the queue");
        counted.ends_after(taken);
    });
}

#[test]
fn failing_start_against_submit() {
    explore("failing start against submit", 5, || {
        let counted = Counted::with_failing_starts(small(), 1);
        let elsewhere = counted.submit_elsewhere();
        let here = usize::from(counted.pool.submit(()).is_ok());
        let taken = here + elsewhere.join().unwrap();
        assert_eq!(taken, 1, "one start failed, and its task was returned");
        counted.ends_after(taken);
    });
}

#[test]
fn failing_start_against_close() {
    explore("failing start against close", 4, || {
        let counted = Counted::with_failing_starts(small(), 1);
        let elsewhere = counted.submit_elsewhere();
        let here = usize::from(counted.pool.submit(()).is_ok());
        counted.pool.close();
        let taken = here + elsewhere.join().unwrap();
        counted.ends_after(taken);
    });
}

#[test]
fn last_handle_dropped_against_a_worker_that_goes_idle() {
    explore("last handle dropped", 6, || {
        let counted = Counted::new(small().threads_min(1));
        counted.pool.submit(()).unwrap();
        // Loom reports a deadlock if the worker stays parked.
        drop(counted.pool);
    });
}
