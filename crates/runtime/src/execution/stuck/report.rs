//! What is reported about a call that does not return.

use std::fmt;
use std::time::Duration;

use super::wait::Wait;

/// A call that has been running for longer than its route ever did, or that has ended after it was
/// reported. Given to [`Service::stuck`](crate::Service::stuck).
///
/// It displays as one line for people.
///
/// ```
/// use filoplume_runtime::Stuck;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static STUCK: AtomicUsize = AtomicUsize::new(0);
///
/// /// Counts the handlers that are stuck at the moment.
/// fn count(stuck: &Stuck) {
///     if stuck.has_ended {
///         STUCK.fetch_sub(1, Ordering::Relaxed);
///     } else {
///         STUCK.fetch_add(1, Ordering::Relaxed);
///         eprintln!("{stuck}");
///     }
/// }
/// # let _ = count;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stuck {
    /// The number of the report. The end of a call has the number of its first report.
    pub number: u64,
    /// The name of the route, as in [`RouteMetrics::name`](crate::RouteMetrics::name).
    pub route: Option<String>,
    /// The ID of the request, if it was [noted](crate::note_request_id).
    pub request_id: Option<String>,
    /// The ID of its trace, if it was [noted](crate::note_trace_id).
    pub trace_id: Option<String>,
    /// How long the call has been running, or how long it took in all. For a call that began on an
    /// event loop up to 3 ms too short.
    pub running: Duration,
    /// How long the longest call of the route took before. Zero if all were short, or there was
    /// none.
    pub longest: Duration,
    /// Whether the call is one of the first of its route: nothing tells yet how long they take.
    pub is_one_of_the_first: bool,
    /// Whether the call has returned.
    pub has_ended: bool,
    /// What the thread waits for. `None` at the end.
    pub wait: Option<Wait>,
    /// The name of the thread.
    pub thread: Option<String>,
    /// Functions that the thread may be in, innermost first, without those that have called the
    /// handler. The text of the report begins with the handler. Only on Linux on x86-64 with the
    /// feature `stacks`, if the program has its symbols, and not at the end or while the thread
    /// computes. Single functions may be missing or wrong, where the tables for unwinding do not
    /// suffice.
    pub frames: Vec<String>,
    /// How many other calls of the route are late at the same time. They are not reported on their
    /// own.
    pub alike: usize,
    /// How many late calls were not reported before this one, because there were too many reports.
    pub unreported: u64,
}

impl Stuck {
    /// Writes a warning to the log, as [`Service::stuck`](crate::Service::stuck) does by default.
    ///
    /// ```
    /// # fn report(stuck: &filoplume_runtime::Stuck) {
    /// stuck.warn();
    /// # }
    /// ```
    pub fn warn(&self) {
        tracing::warn!(
            number = self.number,
            route = self.route,
            request_id = self.request_id,
            trace_id = self.trace_id,
            running = ?self.running,
            has_ended = self.has_ended,
            "{self}"
        );
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = self.route.as_deref().unwrap_or("(a route without a name)");
        let time = Time(self.running);
        if self.has_ended {
            write!(f, "{route}: no longer stuck (#{}): it took {time}", self.number)?;
        } else {
            write!(f, "{route}: stuck (#{}): it has been running for {time}", self.number)?;
            match (self.longest.is_zero(), self.is_one_of_the_first) {
                (true, true) => f.write_str(", one of the first calls of its route")?,
                (true, false) => f.write_str(", longer than ever")?,
                (false, _) => write!(f, ", longer than ever ({})", Time(self.longest))?,
            }
        }
        if let Some(wait) = &self.wait {
            write!(f, ", and {wait}")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, "; request {id}")?;
        }
        if let Some(id) = &self.trace_id {
            write!(f, "; trace {id}")?;
        }
        if let Some(thread) = self.thread.as_ref().filter(|_| !self.has_ended) {
            write!(f, "; thread {thread}")?;
        }
        if self.alike > 0 {
            write!(f, "; {} more of its calls are late", self.alike)?;
        }
        if self.unreported > 0 {
            write!(f, "; {} late calls before were not reported", self.unreported)?;
        }
        if !self.frames.is_empty() {
            f.write_str("; possibly in ")?;
            // The handler first: it is the one that people know.
            for (index, name) in self.frames.iter().rev().enumerate() {
                write!(f, "{}{name}", if index == 0 { "" } else { " > " })?;
            }
        }
        Ok(())
    }
}

/// A time as people read it.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With integers only: formatting floating-point numbers would add 14 kB to a program that
        // has no others.
        let ms = self.0.saturating_add(Duration::from_micros(500)).as_millis();
        let tenths = self.0.saturating_add(Duration::from_millis(50)).as_millis() / 100;
        match tenths {
            _ if ms < 1000 => write!(f, "{ms} ms"),
            0..1000 => write!(f, "{}.{} s", tenths / 10, tenths % 10),
            _ => write!(f, "{} s", (ms + 500) / 1000),
        }
    }
}
