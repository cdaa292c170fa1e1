//! The thread that sends batches, and its handle.

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::batch;
use crate::error::OtlpError;
use crate::http::{Attempt, Client};
use crate::limits::{ATTEMPTS, PAUSE_MAX, REPORT_INTERVAL};
use crate::queue::{Counts, Outcome, Queue};
use crate::random::random;

/// The handle of an exporter. When it is dropped, the spans that wait are sent, for at most the
/// time of [`Otlp::shutdown_timeout`](crate::Otlp::shutdown_timeout).
///
/// ```
/// use filoplume_otlp::Otlp;
/// use std::time::Duration;
///
/// let (_layer, exporter) = Otlp::new().start()?;
/// assert!(exporter.flush(Duration::from_secs(5)), "there was nothing to send");
/// # Ok::<(), filoplume_otlp::OtlpError>(())
/// ```
#[must_use = "dropping it ends the exporter"]
pub struct Exporter {
    queue: Arc<Queue>,
    shutdown_timeout: Duration,
}

/// The state of the thread.
pub(crate) struct Worker {
    pub(crate) queue: Arc<Queue>,
    pub(crate) client: Client,
    pub(crate) resource: Vec<u8>,
    pub(crate) timeout: Duration,
    pub(crate) first_pause: Duration,
}

impl Exporter {
    /// Starts the thread.
    pub(crate) fn start(worker: Worker, shutdown_timeout: Duration) -> Result<Self, OtlpError> {
        let queue = Arc::clone(&worker.queue);
        thread::Builder::new()
            .name("otlp-exporter".to_owned())
            .spawn(move || worker.run())
            .map_err(OtlpError::thread)?;
        Ok(Self { queue, shutdown_timeout })
    }

    /// Sends the spans that have been collected, and waits until they were sent or dropped. Returns
    /// `false` if that took longer than the timeout.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.queue.flush(timeout)
    }

    /// Sends the spans that wait, and ends the thread. Returns `false` if that took longer than the
    /// timeout. Spans that were not sent by then are lost. Later spans are dropped.
    ///
    /// ```
    /// use filoplume_otlp::Otlp;
    /// use std::time::Duration;
    ///
    /// let (_layer, exporter) = Otlp::new().start()?;
    /// assert!(exporter.shutdown(Duration::from_secs(5)));
    /// # Ok::<(), filoplume_otlp::OtlpError>(())
    /// ```
    pub fn shutdown(self, timeout: Duration) -> bool {
        self.queue.close(timeout)
    }

    /// Returns how many spans were exported and dropped so far.
    pub fn counts(&self) -> Counts {
        self.queue.counts()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue.close(self.shutdown_timeout);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Worker {
    fn run(self) {
        // Ends the queue even after a panic, so that nobody waits for this thread.
        let _end = EndOnDrop(&self.queue);
        let mut report = Report::default();
        loop {
            let batch = self.queue.next_batch(|| report.write(self.queue.counts()));
            let Some(batch) = batch else { break };
            let content = batch::request(&self.resource, &batch);
            let outcome = self.send(&content, &mut report);
            self.queue.finish(batch.len() as u64, outcome);
            report.write_sometimes(self.queue.counts());
        }
        self.queue.end();
        report.write(self.queue.counts());
    }

    /// Sends a batch, if necessary several times.
    fn send(&self, content: &[u8], report: &mut Report) -> Outcome {
        for (attempt, pause) in (1..=ATTEMPTS).zip(pauses(self.first_pause)) {
            let left = self.queue.time_left();
            let timeout = left.map_or(self.timeout, |left| left.min(self.timeout));
            if timeout.is_zero() {
                break;
            }
            let after = match self.client.send(content, timeout) {
                Attempt::Accepted { rejected } => return Outcome::Accepted { rejected },
                Attempt::Refused { reason } => {
                    report.reason = Some(reason);
                    break;
                }
                Attempt::Later { reason, after } => {
                    report.reason = Some(reason);
                    report.write_sometimes(self.queue.counts());
                    after
                }
            };
            // A random part of the pause, from a half to the whole, so that many instances do not
            // retry at the same time.
            let jittered = pause.mul_f64(0.5 + f64::from(random().to_le_bytes()[0]) / 512.0);
            let wait = after.unwrap_or(jittered).min(PAUSE_MAX);
            if attempt == ATTEMPTS || !self.queue.pause(wait) {
                break;
            }
        }
        Outcome::Unsent
    }
}

/// Returns the pauses between attempts, without what is random in them: each is twice as long as
/// the one before it.
fn pauses(first: Duration) -> impl Iterator<Item = Duration> {
    iter::successors(Some(first), |pause| Some(pause.saturating_mul(2).min(PAUSE_MAX)))
}

struct EndOnDrop<'a>(&'a Queue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Log lines about dropped spans, at a bounded rate.
#[derive(Default)]
struct Report {
    told: Counts,
    at: Option<Instant>,
    /// Why the last attempt failed.
    reason: Option<String>,
}

impl Report {
    fn write_sometimes(&mut self, counts: Counts) {
        if self.at.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            self.write(counts);
        }
    }

    /// Writes what was dropped since the last line, if anything.
    fn write(&mut self, counts: Counts) {
        if counts.dropped() == self.told.dropped() {
            return;
        }
        tracing::warn!(
            target: "filoplume_otlp",
            dropped_full = counts.dropped_full - self.told.dropped_full,
            dropped_unsent = counts.dropped_unsent - self.told.dropped_unsent,
            rejected = counts.rejected - self.told.rejected,
            reason = self.reason.as_deref(),
            "spans were not exported"
        );
        self.told = counts;
        self.at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_maximum() {
        let pauses: Vec<_> = pauses(PAUSE_MAX / 5).take(5).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5].map(|fifths| PAUSE_MAX / 5 * fifths));
    }

    #[test]
    fn lines_about_dropped_spans_keep_their_distance() {
        let dropped = |rejected| Counts { rejected, ..Counts::default() };
        let mut report = Report::default();
        report.write_sometimes(dropped(1));
        assert_eq!(report.told, dropped(1));
        report.at = Some(Instant::now() + REPORT_INTERVAL);
        report.write_sometimes(dropped(2));
        assert_eq!(report.told, dropped(1), "the last line is too near");
        report.at = None;
        report.write_sometimes(dropped(3));
        assert_eq!(report.told, dropped(3));
    }
}
