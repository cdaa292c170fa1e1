//! The text of all metrics, for Prometheus. It is formatted once for all who ask at the same time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use filoplume_runtime::Timing;
use parking_lot::{Mutex, MutexGuard};

use super::counts::{OTHER_SERVER_ERROR, OTHER_STATUS, RouteCounts, Times};
use super::histogram::Snapshot;
use super::open_metrics::{OpenMetrics, Resolution, push_number};
use super::permits::write_permits;
#[cfg(target_os = "linux")]
use super::process::write_process;
#[cfg(feature = "console")]
use super::server_text::write_idle;
use super::server_text::{write_handlers, write_refusals, write_server};
use super::{Known, Observer};

/// How long a text is returned again. Scrapers ask every few seconds. However often clients ask,
/// the text is formatted at most twice a second.
const AGE_MAX: Duration = Duration::from_millis(500);

/// The maximum age of a text that is returned while the next one is formatted. A value that stood
/// still for longer than this would look like a server without requests. Formatting takes tens of
/// milliseconds, unless a collector of the app hangs.
const STALE_MAX: Duration = Duration::from_secs(5);

/// A phase is written for a route once a request has spent this long in it. Most routes never wait,
/// and their series would all be zero.
const PHASE_MIN: Duration = Duration::from_micros(100);

/// How many requests may wait for a text, because each holds a thread. A thousand routes take tens
/// of milliseconds, in which hundreds of clients may ask.
const WAITING_MAX: usize = 4;

/// The last text.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    last: Mutex<Option<(Instant, Bytes)>>,
    /// Locked by the thread that formats.
    formatting: Mutex<()>,
    /// The callers that wait for a text.
    waiting: AtomicUsize,
}

impl Scrape {
    /// Returns the last text, or a new one if it is too old. While one thread formats a text, the
    /// others get the last one, unless there is none or it is [stale](STALE_MAX). Then up to
    /// `waiting_max` callers wait. The others get `None`.
    pub(super) fn get(
        &self,
        now: Instant,
        waiting_max: usize,
        format: impl FnOnce() -> String,
    ) -> Option<Bytes> {
        if let Some(text) = self.younger_than(AGE_MAX, now) {
            return Some(text);
        }
        let _formatting = match self.formatting.try_lock() {
            Some(formatting) => formatting,
            None => {
                if let Some(text) = self.younger_than(STALE_MAX, now) {
                    return Some(text);
                }
                let before = self.last.lock().as_ref().map(|(at, _)| *at);
                let formatting = self.wait(waiting_max)?;
                // A text that was completed meanwhile is new, however long that took.
                match &*self.last.lock() {
                    Some((at, text)) if Some(*at) != before => return Some(text.clone()),
                    _ => formatting,
                }
            }
        };
        if let Some(text) = self.younger_than(AGE_MAX, now) {
            return Some(text);
        }
        let text = Bytes::from(format());
        *self.last.lock() = Some((now, text.clone()));
        Some(text)
    }

    /// Returns the last text if its age is less than this.
    fn younger_than(&self, age: Duration, now: Instant) -> Option<Bytes> {
        let last = self.last.lock();
        let (at, text) = last.as_ref()?;
        (now.saturating_duration_since(*at) < age).then(|| text.clone())
    }

    /// Waits until no other thread formats, unless as many callers as may wait do so already.
    fn wait(&self, waiting_max: usize) -> Option<MutexGuard<'_, ()>> {
        let others = self.waiting.fetch_add(1, Relaxed);
        let formatting = (others < waiting_max).then(|| self.formatting.lock());
        self.waiting.fetch_sub(1, Relaxed);
        formatting
    }
}

impl Observer {
    /// Returns everything as OpenMetrics: a new text, or the last one as [`Scrape::get`] says.
    pub(crate) fn open_metrics(&self) -> Bytes {
        self.scraped(usize::MAX).unwrap_or_default()
    }

    /// As `open_metrics`. Returns `None` if there is no text that is young enough, and others wait
    /// for the next one already.
    pub(crate) fn open_metrics_soon(&self) -> Option<Bytes> {
        self.scraped(WAITING_MAX)
    }

    fn scraped(&self, waiting_max: usize) -> Option<Bytes> {
        self.scrape.get(Instant::now(), waiting_max, || self.format_open_metrics())
    }

    fn format_open_metrics(&self) -> String {
        let known = self.known.get();
        let routes = known.map_or(0, |known| known.counts.routes());
        let mut text = OpenMetrics::with_capacity(8 * 1024 + routes * 4096);
        if let Some(known) = known {
            known.write_requests(&mut text);
            known.write_times(&mut text);
            write_permits(&known.permits, &mut text);
        }
        #[cfg(feature = "websocket")]
        self.sockets.write(&mut text);
        if let Some(metrics) = self.server() {
            write_server(&metrics, &mut text);
            write_refusals(&metrics, &mut text);
            #[cfg(feature = "console")]
            write_idle(&self.idle_connections().unwrap_or_default(), &mut text);
            if let Some(known) = known {
                write_handlers(&metrics, |number| known.labels_of(number), &mut text);
            }
        }
        #[cfg(target_os = "linux")]
        write_process(&mut text);
        self.collectors.write(&mut text);
        text.finish()
    }
}

impl Known {
    fn write_requests(&self, text: &mut OpenMetrics) {
        let counts: Vec<(&str, RouteCounts)> = self
            .labels
            .iter()
            .enumerate()
            .map(|(route, labels)| (&**labels, self.counts.read(route)))
            .filter(|(_, counts)| counts.begun > 0)
            .collect();
        text.family("http_server_requests", "counter", "Requests that have a response.");
        let mut label = String::new();
        for (labels, counts) in &counts {
            for (status, count) in &counts.statuses {
                label.clear();
                label.push_str("status=\"");
                match *status {
                    OTHER_STATUS => label.push_str("other"),
                    OTHER_SERVER_ERROR => label.push_str("5xx"),
                    status => push_number(&mut label, status.into(), 1),
                }
                label.push('"');
                text.counter(labels, &label, *count);
            }
        }
        text.family("http_server_active_requests", "gauge", "Requests that are being answered.");
        for (labels, counts) in &counts {
            text.gauge(labels, counts.active());
        }
    }

    fn write_times(&self, text: &mut OpenMetrics) {
        text.family(
            "http_server_request_duration_seconds",
            "histogram",
            "From the first byte of a request to the last byte of its response.",
        );
        let labels = self.labels.iter().enumerate();
        let measured: Vec<(&str, &Times)> = labels
            .filter_map(|(route, labels)| Some((&**labels, self.counts.times(route)?)))
            .collect();
        for (labels, times) in &measured {
            text.histogram(labels, &times.total.read(), Resolution::Coarse);
        }
        text.family(
            "http_server_all_request_duration_seconds",
            "histogram",
            "The same for all routes together, in finer buckets.",
        );
        text.histogram("", &self.total.read(), Resolution::Fine);
        text.family(
            "http_server_request_phase_seconds",
            "histogram",
            "The parts of that time. A phase appears when a request spends 100 microseconds in it.",
        );
        let mut with_phase = String::new();
        for (index, (phase, _)) in Timing::default().phases().into_iter().enumerate() {
            for (labels, times) in &measured {
                let Some(times) = times.phase(index).filter(is_worth_a_series) else { continue };
                with_phase.clear();
                with_phase.extend([labels, ",phase=\"", phase, "\""]);
                text.histogram(&with_phase, &times, Resolution::Decades);
            }
        }
    }

    /// Returns the labels of the route with this number in a plan, or of requests without a route.
    fn labels_of(&self, number: u32) -> &str {
        &self.labels[self.index(Some(number))]
    }
}

fn is_worth_a_series(times: &Snapshot) -> bool {
    times.quantile(1.0).is_some_and(|longest| longest > PHASE_MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::super::histogram::Histogram;
    use super::*;

    #[test]
    fn a_phase_has_a_series_once_a_request_spent_more_than_the_least_time_in_it() {
        let histogram = Histogram::default();
        assert!(!is_worth_a_series(&histogram.read()));
        histogram.add(PHASE_MIN, 1);
        assert!(!is_worth_a_series(&histogram.read()));
        histogram.add(PHASE_MIN + Duration::from_nanos(1), 1);
        assert!(is_worth_a_series(&histogram.read()));
    }

    fn get(scrape: &Scrape, now: Instant, format: impl FnOnce() -> String) -> Bytes {
        scrape.get(now, WAITING_MAX, format).unwrap()
    }

    /// Hundreds of clients that ask at once must not hold a thread each.
    #[test]
    fn a_few_callers_wait_for_the_first_text_and_the_others_are_told_to_come_back() {
        a_few_wait_for(&Scrape::default(), Instant::now());
    }

    /// Regression: while a collector hung, others got the last text, however old it was.
    #[test]
    fn a_few_callers_wait_if_the_last_text_is_too_old() {
        let (scrape, start) = (Scrape::default(), Instant::now());
        get(&scrape, start, || "none".to_owned());
        a_few_wait_for(&scrape, start + STALE_MAX);
    }

    /// A formatting takes longer than a text is fresh. It is not done once for each who waits.
    #[test]
    fn a_text_that_was_completed_while_others_waited_is_new_for_them() {
        let (scrape, start) = (Scrape::default(), Instant::now());
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| {
                get(&scrape, start, move || {
                    begin.send(()).unwrap();
                    let _ = finished.recv();
                    "one".to_owned()
                })
            });
            begun.recv().unwrap();
            let later = start + STALE_MAX * 2;
            let scrape = &scrape;
            let waits = scope.spawn(move || get(scrape, later, || panic!("it is being formatted")));
            while scrape.waiting.load(Relaxed) == 0 {
                thread::yield_now();
            }
            drop(finish);
            assert_eq!(waits.join().unwrap(), "one");
        });
    }

    /// Begins a text at this time, and checks who waits for it.
    fn a_few_wait_for(scrape: &Scrape, now: Instant) {
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                get(scrape, now, move || {
                    begin.send(()).unwrap();
                    let _ = finished.recv();
                    "one".to_owned()
                })
            });
            begun.recv().unwrap();
            let waits = || get(scrape, now, || panic!("it is being formatted"));
            let waiting = [(); WAITING_MAX].map(|()| scope.spawn(waits));
            let end = Instant::now() + Duration::from_secs(30);
            while scrape.waiting.load(Relaxed) < WAITING_MAX && Instant::now() < end {
                thread::yield_now();
            }
            let ask = || scrape.get(now, WAITING_MAX, || panic!("it is being formatted"));
            let others = scope.spawn(move || (0..100).filter_map(|_| ask()).count());
            while !others.is_finished() && Instant::now() < end {
                thread::yield_now();
            }
            drop(finish);
            assert_eq!(others.join().unwrap(), 0, "they got a text");
            assert_eq!(first.join().unwrap(), "one");
            for waited in waiting {
                assert_eq!(waited.join().unwrap(), "one");
            }
        });
        assert_eq!(scrape.waiting.load(Relaxed), 0);
    }

    #[test]
    fn a_text_is_returned_again_until_it_is_old() {
        let scrape = Scrape::default();
        let start = Instant::now();
        let at = |ms: u64, text: &str| {
            get(&scrape, start + Duration::from_millis(ms), || text.to_owned())
        };
        assert_eq!(at(0, "one"), "one");
        assert_eq!(at(499, "two"), "one");
        assert_eq!(at(500, "two"), "two");
        // A clock that was read before that of another thread.
        assert_eq!(at(400, "three"), "two");
    }

    /// One formats, and the others neither wait nor format.
    #[test]
    fn those_who_ask_at_the_same_time_share_a_text() {
        let scrape = Scrape::default();
        let start = Instant::now();
        get(&scrape, start, || "one".to_owned());
        let later = start + AGE_MAX;
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                get(&scrape, later, move || {
                    begin.send(()).unwrap();
                    let _ = finished.recv();
                    "two".to_owned()
                })
            });
            begun.recv().unwrap();
            for _ in 0..100 {
                assert_eq!(get(&scrape, later, || panic!("it is being formatted")), "one");
            }
            drop(finish);
            assert_eq!(first.join().unwrap(), "two");
        });
        assert_eq!(get(&scrape, later, || panic!("it is new")), "two");
    }
}
