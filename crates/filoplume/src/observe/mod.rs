//! What an app knows of its requests: counts, times, and recent requests that were slow or failed.
//!
//! The engine measures single requests ([`Exchange`]) and knows routes by their numbers only. This
//! module gives the routes their names, adds up what was measured, and formats it as text.

#[cfg(feature = "console")]
mod busiest;
mod checks;
mod counts;
mod histogram;
mod id_header;
mod open_metrics;
mod pace;
mod permits;
#[cfg(target_os = "linux")]
pub(crate) mod process;
mod report;
mod samples;
mod scrape;
mod server_text;
mod server_timing;
#[cfg(feature = "websocket")]
mod sockets;
mod stories;

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
#[cfg(feature = "console")]
use std::time::Instant;

#[cfg(feature = "console")]
use filoplume_runtime::IdleConnections;
use filoplume_runtime::{
    Exchange, Metrics, Monitor, PermitHolder, Permits, QueuedFor, Response, Timing,
};

use crate::log::log_without_subscriber;
#[cfg(feature = "console")]
pub(crate) use busiest::Busiest;
#[cfg(feature = "console")]
pub(crate) use checks::CheckReport;
pub(crate) use checks::CheckResults;
use counts::{Counts, OnShard};
use histogram::Histogram;
pub(crate) use id_header::RequestIdHeader;
pub(crate) use open_metrics::CONTENT_TYPE;
use open_metrics::labels;
use pace::Pace;
use permits::NamedPermits;
pub use report::RouteReport;
use samples::Collectors;
pub use samples::Samples;
use scrape::Scrape;
pub(crate) use server_timing::server_timing;
#[cfg(feature = "websocket")]
pub(crate) use sockets::SocketCounts;
use stories::Stories;
pub use stories::{Story, StoryKind};

/// The name under which requests that no route answers are counted.
const NO_ROUTE: &str = "(no route)";

/// What is known of the requests of an app, shared by its threads.
#[derive(Default)]
pub(crate) struct Observer {
    /// Set when the app is built.
    known: OnceLock<Known>,
    monitor: OnceLock<Monitor>,
    stories: Stories,
    scrape: Scrape,
    collectors: Collectors,
    /// How long a request takes at least to count as slow.
    slow_after: OnceLock<Duration>,
    #[cfg(feature = "websocket")]
    sockets: Arc<SocketCounts>,
    #[cfg(feature = "console")]
    started_at: OnceLock<Instant>,
    #[cfg(feature = "console")]
    checks: OnceLock<Arc<dyn CheckResults>>,
}

struct Known {
    /// The routes by number, and one more for requests without a route.
    names: Box<[RouteName]>,
    /// Their labels in the text of the metrics.
    labels: Box<[String]>,
    /// The permits that they use.
    permits: Box<[NamedPermits]>,
    counts: Counts,
    pace: Pace,
    total: Histogram,
}

/// How long a request takes at least to count as slow, unless the app says otherwise.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Returns the ID of the trace that a response belongs to.
type TraceIdOf = fn(&Response) -> Option<String>;

/// What a story needs from a response.
struct Kept {
    request_id: Option<String>,
    trace_id: Option<String>,
    because: Option<Because>,
    failure: Option<Failure>,
}

/// The number of the story of a failure and its cause, as an extension of its response.
#[derive(Clone)]
struct Failure {
    number: u64,
    cause: Option<String>,
}

/// An extension of a response that has the status of a failure although nothing has failed, such as
/// that to a refused viewer of the console.
#[cfg(feature = "console")]
#[derive(Clone, Copy)]
pub(crate) struct NoFailure;

/// Why a request was refused, as an extension of its response.
#[derive(Clone)]
struct Because(String);

/// The name of a route in metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteName {
    /// The methods, such as `GET` or `GET, POST`.
    pub(crate) methods: String,
    pub(crate) pattern: String,
    /// Whether the app says that it runs on the pool.
    pub(crate) is_on_pool: bool,
}

impl Observer {
    /// Called once when the routes of the app are known.
    pub(crate) fn begin<'p>(
        &self,
        routes: impl Iterator<Item = RouteName>,
        permits: impl Iterator<Item = &'p Permits>,
    ) {
        let none =
            RouteName { methods: String::new(), pattern: NO_ROUTE.to_owned(), is_on_pool: false };
        let names: Box<[RouteName]> = routes.chain([none]).collect();
        let labels_of = |RouteName { methods, pattern, .. }: &RouteName| {
            labels(&[("method", methods), ("route", pattern)])
        };
        let labels = names.iter().map(labels_of).collect();
        let counts = Counts::new(names.len());
        let pace = Pace::new(names.len());
        let permits = NamedPermits::of(permits);
        let total = Histogram::default();
        let _ = self.known.set(Known { names, labels, permits, counts, pace, total });
    }

    /// Called when the server starts.
    pub(crate) fn started(&self, monitor: &Monitor) {
        let _ = self.monitor.set(monitor.clone());
        #[cfg(feature = "console")]
        let _ = self.started_at.set(Instant::now());
    }

    /// Returns the metrics of the server. `None` for an app without a server.
    pub(crate) fn server(&self) -> Option<Metrics> {
        self.monitor.get()?.metrics()
    }

    /// Returns what the idle connections of the server wait for, with their number.
    #[cfg(feature = "console")]
    pub(crate) fn idle_connections(&self) -> Option<[(&'static str, u64); 9]> {
        let idle: IdleConnections = self.monitor.get()?.idle_connections()?;
        Some([
            ("TLS handshake", idle.handshake),
            ("first byte", idle.first_byte),
            ("head", idle.head),
            ("content", idle.content),
            ("response taken", idle.response),
            ("next request", idle.request),
            ("stream", idle.stream),
            ("close", idle.close),
            ("other", idle.other),
        ])
    }

    /// Returns the permits that the routes use: the name of each kind, how many are taken, and how
    /// many there are.
    #[cfg(feature = "console")]
    pub(crate) fn permits(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let permits = self.known.get().map(|known| &known.permits[..]).unwrap_or_default();
        permits.iter().map(NamedPermits::read)
    }

    /// Counts a request that begins. Its end is counted on the result.
    #[inline]
    pub(crate) fn begin_request(&self, route: Option<u32>) -> Option<&OnShard> {
        let known = self.known.get()?;
        known.counts.begin(known.index(route))
    }

    /// Counts a request that was refused without a call.
    pub(crate) fn refused(&self, exchange: &Exchange) {
        if let Some(counts) = self.begin_request(exchange.route) {
            counts.end(exchange.status.as_u16());
        }
    }

    /// Counts a request that was refused because of its content or its lateness, and adds its
    /// times.
    pub(crate) fn incomplete(&self, route: Option<u32>, status: u16, timing: Option<&Timing>) {
        if let Some(counts) = self.begin_request(route) {
            counts.end(status);
        }
        if let (Some(known), Some(timing)) = (self.known.get(), timing) {
            known.counts.measured(known.index(route), timing, 1, &known.total);
        }
    }

    /// Adds the times of a request, and tells its story if it was slow or refused.
    pub(crate) fn measured(&self, exchange: &Exchange) {
        let Some(known) = self.known.get() else { return };
        let (timing, stands_for) = (&exchange.timing, exchange.stands_for);
        known.counts.measured(known.index(exchange.route), timing, stands_for, &known.total);
        if self.is_worth_a_story(exchange) {
            self.tell(known, exchange);
        }
    }

    /// Sets how long a request takes at least to count as slow.
    pub(crate) fn set_slow_after(&self, time: Duration) {
        let _ = self.slow_after.set(time);
    }

    /// Called before a response is sent. Keeps what its story will need, if it may have one.
    pub(crate) fn keep(
        &self,
        response: &mut Response,
        exchange: &mut Exchange,
        trace_id_of: TraceIdOf,
    ) {
        if self.is_worth_a_story(exchange) {
            let because = response.extensions_mut().remove::<Because>();
            let because = because.or_else(|| self.because_of_body(exchange));
            let (request_id, trace_id) = (RequestIdHeader::id_of(response), trace_id_of(response));
            let failure = response.extensions_mut().remove::<Failure>();
            exchange.note = Some(Arc::new(Kept { request_id, trace_id, because, failure }));
        }
    }

    /// Returns why a response became a refusal after its handler had returned: no thread was free
    /// for the code that writes its body. The service is not asked about these.
    fn because_of_body(&self, exchange: &Exchange) -> Option<Because> {
        let refusal = exchange.refusal?;
        let known = self.known.get()?;
        known.may_note(exchange.route, StoryKind::Refused).then(|| Because(refusal.to_string()))
    }

    /// Called when the engine refuses a request. `because` is evaluated only if the refusal will
    /// have a story.
    pub(crate) fn note_refusal(
        &self,
        route: Option<u32>,
        response: &mut Response,
        because: impl FnOnce() -> String,
    ) {
        if self.known.get().is_some_and(|known| known.may_note(route, StoryKind::Refused)) {
            response.extensions_mut().insert(Because(because()));
        }
    }

    /// Tells the story of a request that has failed.
    #[cold]
    pub(crate) fn failed(
        &self,
        route: Option<u32>,
        response: &mut Response,
        trace_id_of: TraceIdOf,
        cause_of: impl FnOnce(&Response) -> Option<String>,
    ) {
        #[cfg(feature = "console")]
        if response.extensions_mut().remove::<NoFailure>().is_some() {
            return;
        }
        let known = self.known.get().filter(|known| known.may_note(route, StoryKind::Failed));
        let Some(known) = known else { return };
        let mut story = Story::of_failure(response.status().as_u16());
        story.request_id = RequestIdHeader::id_of(response);
        story.trace_id = trace_id_of(response);
        story.cause = cause_of(response);
        let route = known.index(route);
        known.name(route, &mut story);
        let cause = story.cause.clone();
        let number = self.stories.note(route, story);
        // If the request was slow as well, its story is completed later.
        response.extensions_mut().insert(Failure { number, cause });
    }

    /// Returns where the WebSockets of the app are counted.
    #[cfg(feature = "websocket")]
    pub(crate) fn sockets(&self) -> Arc<SocketCounts> {
        Arc::clone(&self.sockets)
    }

    /// Adds samples to each text of the metrics.
    pub(crate) fn add_collector(&self, collect: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.collectors.add(Box::new(collect));
    }

    /// Adds the results of the health checks.
    pub(crate) fn add_checks(&self, checks: Arc<dyn CheckResults>) {
        #[cfg(feature = "console")]
        let _ = self.checks.set(Arc::clone(&checks));
        self.add_collector(move |samples| checks.collect(samples));
    }

    /// Returns the recent stories, the newest first.
    pub(crate) fn recent(&self) -> Vec<Story> {
        self.stories.read()
    }

    fn is_worth_a_story(&self, exchange: &Exchange) -> bool {
        exchange.refusal.is_some()
            || exchange.timing.total() >= self.slow_after.get().copied().unwrap_or(SLOW_AFTER)
    }

    #[cold]
    fn tell(&self, known: &Known, exchange: &Exchange) {
        let kept = exchange.note.as_ref().and_then(|note| note.downcast_ref::<Kept>());
        let because = kept.and_then(|kept| kept.because.as_ref());
        let failure = kept.and_then(|kept| kept.failure.as_ref());
        let may_note = match exchange.refusal {
            // Decided when it was refused.
            Some(_) => because.is_some(),
            // Decided when it failed.
            None if failure.is_some() => true,
            None => known.may_note(exchange.route, StoryKind::Slow),
        };
        if !may_note {
            return;
        }
        let mut story = Story::of(exchange);
        story.request_id = kept.and_then(|kept| kept.request_id.clone());
        story.trace_id = kept.and_then(|kept| kept.trace_id.clone());
        story.waited_for = known.waited_for(exchange);
        story.refused = because.map(|because| because.0.clone());
        story.cause = failure.and_then(|failure| failure.cause.clone());
        let route = known.index(exchange.route);
        known.name(route, &mut story);
        tracing::warn!(%story, "a request was slow or was refused");
        // A line of the log has ASCII characters only.
        log_without_subscriber(&story.to_string().replace("µs", "us"));
        match failure {
            Some(Failure { number, .. }) if exchange.refusal.is_none() => {
                story.kind = StoryKind::Failed;
                self.stories.replace(*number, route, story);
            }
            _ => {
                self.stories.note(route, story);
            }
        }
    }
}

impl Known {
    #[inline]
    fn index(&self, route: Option<u32>) -> usize {
        let last = self.names.len() - 1;
        route.and_then(|route| usize::try_from(route).ok()).map_or(last, |route| route.min(last))
    }

    /// Returns what a slow request waited for, if it waited for at least half of its time.
    fn waited_for(&self, exchange: &Exchange) -> Option<String> {
        let Timing { queue, .. } = exchange.timing;
        if exchange.refusal.is_some() || queue < exchange.timing.total() / 2 {
            return None;
        }
        Some(match exchange.queued_for.as_ref()? {
            QueuedFor::Thread { holder, held } => {
                let holder = holder.and_then(|route| self.names.get(usize::try_from(route).ok()?));
                match holder {
                    Some(holder) => format!("a thread while {holder} had {held}"),
                    None => format!("a thread while one route had {held}"),
                }
            }
            QueuedFor::Processor => "a processor, as calls of its route compute".to_owned(),
            QueuedFor::ClientShare => "a thread while its client had its share of them".to_owned(),
            QueuedFor::Permit { permits, holders } => self.waited_for_permit(permits, holders),
            _ => return None,
        })
    }

    fn waited_for_permit(&self, permits: &Permits, holders: &[PermitHolder]) -> String {
        let mut text = format!("a permit \"{}\"", permits.name());
        for (index, PermitHolder { route, held, oldest, .. }) in holders.iter().enumerate() {
            let separator = if index == 0 { " while " } else { ", " };
            let oldest = oldest.as_millis();
            // Writing to a `String` cannot fail.
            let _ = match route.and_then(|route| self.names.get(usize::try_from(route).ok()?)) {
                Some(name) => {
                    write!(text, "{separator}{name} had {held}, the oldest for {oldest} ms")
                }
                None => write!(text, "{separator}others had {held}, the oldest for {oldest} ms"),
            };
        }
        text
    }

    fn name(&self, route: usize, story: &mut Story) {
        if let Some(name) = self.names.get(route) {
            story.methods.clone_from(&name.methods);
            story.pattern.clone_from(&name.pattern);
        }
    }

    /// Returns whether a story of this route and kind may be noted now.
    fn may_note(&self, route: Option<u32>, kind: StoryKind) -> bool {
        self.pace.may_note(self.index(route), kind)
    }
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.methods.is_empty() { "" } else { " " };
        write!(f, "{}{separator}{}", self.methods, self.pattern)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn not_every_failure_of_a_flood_has_a_story() {
        let observer = Observer::default();
        observer.begin(iter::empty(), iter::empty());
        let mut told = 0;
        for _ in 0..5000 {
            observer.failed(
                None,
                &mut Response::new(500),
                |_| None,
                |_| {
                    told += 1;
                    None
                },
            );
        }
        assert!((1..5000).contains(&told), "{told}");
    }
}
