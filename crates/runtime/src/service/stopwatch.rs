//! The time of a request that is being handled.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::exchange::Timing;
use crate::execution::probe::on_processor;

/// Where the time of a request went so far, for its handler: see
/// [`Request::stopwatch`](crate::Request::stopwatch). It is for frameworks that log the times or
/// send them.
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response, Service};
///
/// struct Timed;
///
/// impl Service for Timed {
///     fn plan(&self, _: &mut Request) -> Plan {
///         Plan::new().timed()
///     }
///
///     fn measures(&self) -> bool {
///         true
///     }
///
///     fn call(&self, request: Request) -> Response {
///         let stopwatch = request.stopwatch();
///         // ... the work
///         if let Some(timing) = stopwatch.map(|stopwatch| stopwatch.timing()) {
///             println!("{:?} until here, {:?} waiting", timing.total(), timing.waiting);
///         }
///         Response::default()
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// The phases before the handler.
    before: Timing,
    started: Instant,
    thread: ThreadId,
    /// The CPU time of the thread at the start. `None` if the system does not say.
    on_processor: Option<Duration>,
}

impl Stopwatch {
    /// Starts now, on the thread of the handler.
    pub(crate) fn start(before: Timing, started: Instant) -> Self {
        Self { before, started, thread: thread::current().id(), on_processor: on_processor() }
    }

    /// Returns where the time went until now. [`write`](Timing::write) is zero.
    ///
    /// On another thread than the handler's, and if the system has no clock for threads, the time
    /// of the handler is not divided: all of it is [`waiting`](Timing::waiting) on another thread,
    /// and [`computing`](Timing::computing) without a clock.
    pub fn timing(&self) -> Timing {
        let wall = self.started.elapsed();
        let computing = match self.on_processor.zip(on_processor()) {
            _ if thread::current().id() != self.thread => Duration::ZERO,
            Some((before, now)) => now.saturating_sub(before).min(wall),
            None => wall,
        };
        Timing { computing, waiting: wall.saturating_sub(computing), ..self.before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_continues_behind_the_phases_before_the_handler() {
        let before = Timing { queue: MS * 7, ..Timing::default() };
        let stopwatch = Stopwatch::start(before, Instant::now());
        thread::sleep(MS * 20);
        let timing = stopwatch.timing();
        assert_eq!((timing.queue, timing.write), (MS * 7, Duration::ZERO));
        assert!(timing.waiting + timing.computing >= MS * 20, "{timing:?}");
        #[cfg(unix)]
        assert!(timing.waiting > timing.computing, "{timing:?}");
    }

    #[test]
    fn another_thread_does_not_divide_the_time() {
        let stopwatch = Stopwatch::start(Timing::default(), Instant::now());
        let timing = thread::spawn(move || stopwatch.timing()).join().unwrap();
        assert_eq!(timing.computing, Duration::ZERO);
        assert!(timing.waiting > Duration::ZERO);
    }
}
