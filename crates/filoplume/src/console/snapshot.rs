//! What viewers are sent: the state of the app at one moment, as JSON.
//!
//! Counters are totals since the start, so readers compute rates from two snapshots. Values that
//! are not known are `null`. The guide lists the members.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filoplume_runtime::{Metrics, Phase, RouteMetrics, RunningCall, Runs, Wait, Why};

use super::feed::VIEWERS_MAX;
use super::json::{Object, object};
#[cfg(target_os = "linux")]
use crate::observe::process;
use crate::observe::{Busiest, CheckReport, Observer, RouteReport, Story};

/// The version of the form. It changes when a member gets another meaning or is removed.
const VERSION: u64 = 1;

/// How many routes are shown. A page with more is no longer read.
const ROUTES_MAX: usize = 200;

/// Longest ID of a request that is shown, in characters. The app may have taken it from a client.
const ID_CHARS_MAX: usize = 64;

/// Longest message of a health check, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Shorter calls are not added to the values of their routes: they end soon, and what they wait for
/// is not looked up.
const RUNNING_MIN: Duration = Duration::from_millis(10);

/// Returns a number that changes when a route moves between the event loops and the pool.
pub(super) fn moves(observer: &Observer) -> u64 {
    observer.route_moves().unwrap_or_default()
}

/// Returns the state of the app as JSON.
pub(super) fn snapshot(observer: &Observer, viewers: usize) -> String {
    let server = observer.server();
    let server = server.as_ref();
    let busiest = observer.busiest(ROUTES_MAX);
    let calls = observer.calls();
    let stories = observer.recent();
    let capacity = 2048 + 384 * busiest.routes.len() + 256 * stories.len();
    object(capacity, |json| {
        json.number("version", VERSION);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        json.number("at_ms", u64::try_from(now.as_millis()).ok());
        json.seconds("uptime_s", observer.uptime());
        json.text("phase", phase(observer, server));
        write_totals(json, server, &busiest);
        write_idle(json, observer);
        write_limits(json, observer, server, viewers);
        write_loops(json, server);
        write_calls(json, &calls);
        json.list("checks", observer.checks(), |json, check| write_check(json, &check));
        write_routes(json, server, &busiest, &by_route(&calls));
        write_ended(json, server);
        write_refusals(json, server);
        json.list("stories", &stories, write_story);
    })
}

fn phase(observer: &Observer, server: Option<&Metrics>) -> Option<&'static str> {
    Some(match server.map(|metrics| metrics.phase) {
        Some(Phase::Serving) => "serving",
        Some(Phase::LameDuck) => "lame duck",
        Some(Phase::Draining) => "draining",
        Some(Phase::Stopped) => "stopped",
        // The server has ended. An app without a server has no phase.
        None if observer.has_server() => "stopped",
        _ => return None,
    })
}

fn write_totals(json: &mut Object<'_>, server: Option<&Metrics>, busiest: &Busiest) {
    json.object("requests", |json| {
        json.number("total", server.map_or(busiest.requests, |metrics| metrics.requests));
        json.number("active", busiest.active);
        json.number("waiting", server.map(|metrics| metrics.waiting as u64));
    });
    json.object("connections", |json| {
        json.number("open", server.map(|metrics| metrics.connections));
        json.number("idle", server.map(|metrics| metrics.parked.min(metrics.connections)));
        json.number("max", server.map(|metrics| metrics.connections_max));
        json.number("accepted", server.map(|metrics| metrics.accepted));
    });
    json.object("threads", |json| {
        json.number("total", server.map(|metrics| metrics.pool.threads as u64));
        json.number("busy", server.map(busy_threads));
        json.number("max", server.map(|metrics| metrics.threads_max as u64));
    });
    json.object("memory", |json| {
        json.number("used", server.map(|metrics| metrics.memory_used as u64));
        json.number("max", server.map(|metrics| metrics.memory_max as u64));
        #[cfg(target_os = "linux")]
        json.number("process", process::resident_memory());
        #[cfg(not(target_os = "linux"))]
        json.number("process", None);
    });
}

/// Writes what the idle connections wait for, the most frequent first.
fn write_idle(json: &mut Object<'_>, observer: &Observer) {
    let mut idle = observer.idle_connections().unwrap_or_default();
    idle.sort_by_key(|&(_, count)| Reverse(count));
    let some = idle.into_iter().filter(|&(_, count)| count > 0);
    json.list("idle", some, |json, (waits_for, count)| {
        json.text("waits_for", waits_for);
        json.number("count", count);
    });
}

fn busy_threads(metrics: &Metrics) -> u64 {
    metrics.pool.threads.saturating_sub(metrics.pool.idle) as u64
}

fn write_limits(
    json: &mut Object<'_>,
    observer: &Observer,
    server: Option<&Metrics>,
    viewers: usize,
) {
    let mut limits: Vec<(Cow<'_, str>, u64, u64)> = Vec::new();
    if let Some(metrics) = server {
        limits.push(("connections".into(), metrics.connections, metrics.connections_max));
        // Threads that lead loops do not count toward the maximum.
        let threads = busy_threads(metrics).saturating_sub(metrics.loops().len() as u64);
        limits.push(("threads for handlers".into(), threads, metrics.threads_max as u64));
        if metrics.descriptors_max < usize::MAX {
            let used = metrics.connections + metrics.held_descriptors as u64;
            let max = metrics.descriptors_max as u64;
            limits.push(("connections and held descriptors".into(), used, max));
        }
        limits.push(("memory".into(), metrics.memory_used as u64, metrics.memory_max as u64));
    }
    #[cfg(target_os = "linux")]
    if let (Some(open), Some(max)) = (process::open_descriptors(), process::descriptors_max()) {
        limits.push(("open files of the process".into(), open.min(max), max));
    }
    let of_permits = |(name, taken, count)| (format!("permits \"{name}\"").into(), taken, count);
    limits.extend(observer.permits().map(of_permits));
    limits.push(("viewers of the console".into(), viewers as u64, VIEWERS_MAX as u64));
    json.list("limits", limits, |json, (name, used, max)| {
        json.text("name", &*name);
        json.number("used", used);
        json.number("max", max);
    });
}

fn write_loops(json: &mut Object<'_>, server: Option<&Metrics>) {
    let loops = server.map(Metrics::loops).unwrap_or_default();
    json.list("loops", loops, |json, event_loop| {
        json.text("thread", event_loop.thread.as_deref());
        json.number("connections", event_loop.connections);
        json.number("idle", event_loop.parked.min(event_loop.connections));
        json.number("handed_over", event_loop.handed_over);
    });
}

fn write_calls(json: &mut Object<'_>, calls: &[RunningCall]) {
    // The first snapshot of a viewer is made by a handler, whose own call is left out.
    let this = thread::current();
    let others =
        calls.iter().filter(|call| call.thread.is_none() || call.thread.as_deref() != this.name());
    json.list("calls", others, |json, call| {
        json.text("thread", call.thread.as_deref());
        json.number("thread_id", u64::from(call.thread_id));
        json.text("route", call.route.as_deref());
        json.text("request_id", call.request_id.as_deref().map(bounded));
        json.text("trace_id", call.trace_id.as_deref());
        json.milliseconds("running_ms", call.running);
        json.text("runs", runs(call.runs));
        json.text("waits_for", call.wait.as_ref().map(Wait::to_string).as_deref());
        json.boolean("detached", call.is_detached);
    });
}

fn write_check(json: &mut Object<'_>, check: &CheckReport) {
    json.text("name", &*check.name);
    json.text("state", check.state);
    json.boolean("required", check.is_required);
    json.seconds("since_s", check.since);
    json.milliseconds("took_ms", check.took);
    json.text("message", check.message.as_deref().map(|text| cut(text, MESSAGE_CHARS_MAX)));
}

/// What the calls of a route that run at this moment add to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Running {
    /// How long those that compute have been running.
    computing: Duration,
    /// How long those that wait have been running.
    waiting: Duration,
    /// One of them has held a thread of the pool for a while.
    is_on_pool: bool,
}

/// Returns what the running calls add to their routes. A call that may hold its thread for as long
/// as it wants, and one that began a moment ago, add nothing.
fn by_route(calls: &[RunningCall]) -> HashMap<&str, Running> {
    let mut routes: HashMap<&str, Running> = HashMap::new();
    for call in calls.iter().filter(|call| !call.is_detached && call.running >= RUNNING_MIN) {
        let Some(route) = &call.route else { continue };
        let running = routes.entry(route).or_default();
        match &call.wait {
            Some(Wait::Computing) => running.computing += call.running,
            Some(Wait::Unknown) | None => {}
            Some(_) => running.waiting += call.running,
        }
        running.is_on_pool |= call.runs == Runs::OnPool;
    }
    routes
}

fn write_routes(
    json: &mut Object<'_>,
    server: Option<&Metrics>,
    busiest: &Busiest,
    running: &HashMap<&str, Running>,
) {
    let measured: HashMap<&str, &RouteMetrics> = server
        .map(Metrics::routes)
        .unwrap_or_default()
        .iter()
        .map(|route| (&*route.name, route))
        .collect();
    json.number("routes_known", busiest.known as u64);
    json.list("routes", &busiest.routes, |json, report| {
        let name = route_name(report);
        let running = running.get(&*name).copied().unwrap_or_default();
        write_route(json, report, measured.get(&*name).copied(), running);
    });
}

/// Returns the name that the engine has for a route.
fn route_name(report: &RouteReport) -> String {
    match &*report.methods {
        "" => report.pattern.clone(),
        methods => format!("{methods} {}", report.pattern),
    }
}

fn write_route(
    json: &mut Object<'_>,
    report: &RouteReport,
    measured: Option<&RouteMetrics>,
    running: Running,
) {
    let failures = report.statuses.iter().filter(|(status, _)| *status >= 500);
    json.text("methods", &*report.methods);
    json.text("pattern", &*report.pattern);
    json.number("requests", report.requests);
    json.number("active", report.active);
    json.number("errors", failures.map(|(_, count)| count).sum::<u64>());
    json.milliseconds("median_ms", report.median);
    json.milliseconds("p99_ms", report.p99);
    // The engine measures both as well, but not for calls that lose their loops to other threads.
    // A call that hangs has no times yet, so what is known of running calls is added.
    json.seconds("computing_s", with_running(phase_of(report, "computing"), running.computing));
    json.seconds("waiting_s", with_running(phase_of(report, "waiting"), running.waiting));
    if report.is_on_pool {
        // The engine does not learn where such a route would run best.
        json.text("runs", runs(Runs::OnPool));
        json.text("why", "the app says so: `on_pool`");
        json.seconds("since_s", None);
        return;
    }
    if running.is_on_pool && measured.is_none_or(|route| route.runs == Runs::OnLoop) {
        json.text("runs", runs(Runs::OnPool));
        json.text("why", "a call holds a thread, as one does that reads its content as it arrives");
        json.seconds("since_s", None);
        return;
    }
    json.text("runs", measured.and_then(|route| runs(route.runs)));
    json.text("why", measured.map(|route| why(route.why)).as_deref());
    json.seconds("since_s", measured.and_then(|route| Some(route.since?.elapsed())));
}

/// Returns the time in a phase. `None` if no request was measured.
fn phase_of(report: &RouteReport, wanted: &str) -> Option<Duration> {
    report.median?;
    let phase = report.phases.iter().find(|(name, _)| *name == wanted);
    Some(phase.map_or(Duration::ZERO, |(_, time)| *time))
}

/// Adds the times of calls that run to those of calls that have ended.
fn with_running(ended: Option<Duration>, running: Duration) -> Option<Duration> {
    if running.is_zero() { ended } else { Some(ended.unwrap_or_default() + running) }
}

fn runs(runs: Runs) -> Option<&'static str> {
    match runs {
        Runs::OnLoop => Some("loop"),
        Runs::OnPool => Some("pool"),
        _ => None,
    }
}

fn why(why: Why) -> String {
    match why {
        Why::NotSeenToWait => "not seen to wait".to_owned(),
        Why::Waited(time) => format!("calls waited on the loop, the last for {:?}", short(time)),
        Why::Computed(time) => {
            format!("calls computed on the loop for too long, the last for {:?}", short(time))
        }
        Why::Caught => "a call did not return, and its loop was taken from it".to_owned(),
        Why::Quick => "many calls in a row were quick".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Returns a time in full microseconds, which is enough for people.
fn short(time: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Writes why connections were ended or not accepted, the most frequent reason first.
fn write_ended(json: &mut Object<'_>, server: Option<&Metrics>) {
    let mut ended: Vec<(Cow<'_, str>, u64)> = Vec::new();
    if let Some(metrics) = server {
        let timeouts = metrics.timeouts();
        ended.extend(
            timeouts.map(|(awaited, count)| (format!("deadline: {awaited}").into(), count)),
        );
        let (shed, errors) = (metrics.shed_for_descriptors, metrics.accepts_without_descriptor);
        ended.extend([
            ("room for others".into(), metrics.connections_shed.saturating_sub(shed)),
            ("no free descriptor".into(), shed),
            ("no memory for the response".into(), metrics.ended_for_memory),
            ("not accepted: no free descriptor".into(), errors),
            ("not accepted: another error".into(), metrics.accept_errors.saturating_sub(errors)),
        ]);
    }
    ended.retain(|&(_, count)| count > 0);
    ended.sort_by_key(|&(_, count)| Reverse(count));
    json.list("ended", ended, |json, (reason, count)| {
        json.text("reason", &*reason);
        json.number("count", count);
    });
}

fn write_refusals(json: &mut Object<'_>, server: Option<&Metrics>) {
    let refusals = server.into_iter().flat_map(Metrics::refusals);
    json.list("refusals", refusals, |json, (refusal, count)| {
        json.text("reason", &*refusal.to_string());
        json.number("count", count);
    });
}

fn write_story(json: &mut Object<'_>, story: &Story) {
    let at = story.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json.number("at_ms", u64::try_from(at.as_millis()).ok());
    json.text("kind", story.kind.as_str());
    let mut route = story.methods.clone();
    let separator = if route.is_empty() { "" } else { " " };
    // Writing to a `String` cannot fail.
    let _ = write!(route, "{separator}{}", story.pattern);
    json.text("route", &*route);
    json.number("status", u64::from(story.status));
    json.text("request_id", story.request_id.as_deref().map(bounded));
    // The ID has a member of its own.
    let text = Story { request_id: None, ..story.clone() }.to_string();
    json.text("text", &*text);
}

fn bounded(id: &str) -> &str {
    cut(id, ID_CHARS_MAX)
}

fn cut(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end])
}
