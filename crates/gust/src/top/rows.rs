//! The values of a snapshot as people read them.

use super::cells::{Cell, Column, Line, Look, Size, table};
use super::rates::Rates;
use super::snapshot::{Call, Check, EventLoop, Idle, Limit, Reason, Route, Snapshot, Story, Text};
use crate::units;

/// The order of the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Requests,
    P99,
    Waiting,
    Computing,
}

/// The shares of a limit from which on it is shown as a warning, or as bad.
const NEARLY_FULL: f64 = 0.8;
const FULL: f64 = 0.95;

/// What is shown for a value that is not known.
const UNKNOWN: &str = "-";

/// Returns the values that concern the whole server.
pub(super) fn totals(now: &Snapshot, requests_per_second: Option<f64>) -> Vec<Cell> {
    let phase = now.phase.as_str();
    let look = match phase {
        "serving" => Look::Good,
        "stopped" => Look::Bad,
        _ => Look::Warning,
    };
    let phase = if phase.is_empty() { "unknown phase" } else { phase };
    let waiting = now.requests.waiting;
    let has_waiting = waiting.is_some_and(|waiting| waiting > 0.0);
    let (connections, threads, memory) = (now.connections, now.threads, now.memory);
    // Only Linux tells it.
    let process = memory.process.map(|process| format!(", process {}", bytes(Some(process))));
    let process = process.unwrap_or_default();
    vec![
        Cell::new(phase, look),
        Cell::plain(format!("up {}", uptime(now.uptime_s))),
        Cell::plain(format!("{} requests/s", rate(requests_per_second))),
        Cell::plain(format!("{} active", count(now.requests.active))),
        Cell::new(
            format!("{} waiting", count(waiting)),
            if has_waiting { Look::Warning } else { Look::Plain },
        ),
        Cell::plain(format!(
            "connections {} of {}, {} idle",
            count(connections.open),
            count(connections.max),
            count(connections.idle)
        )),
        Cell::plain(format!(
            "threads {} busy of {}, {} for handlers",
            count(threads.busy),
            count(threads.total),
            count(threads.max)
        )),
        Cell::plain(format!("memory {} of {}{process}", bytes(memory.used), bytes(memory.max))),
    ]
}

/// Returns each limit with how full it is, the fullest first.
pub(super) fn limits(now: &Snapshot) -> Vec<Cell> {
    let share = |limit: &Limit| {
        let (used, max) = (limit.used?, limit.max?);
        (max > 0.0).then(|| used / max)
    };
    let mut limits: Vec<_> = now.limits.iter().map(|limit| (limit, share(limit))).collect();
    limits.sort_by(|(_, one), (_, other)| descending(*one, *other));
    let cell = |(limit, share): (&Limit, Option<f64>)| {
        let look = match share {
            Some(share) if share >= FULL => Look::Bad,
            Some(share) if share >= NEARLY_FULL => Look::Warning,
            _ => Look::Plain,
        };
        let full = share.map_or(UNKNOWN.to_owned(), |share| format!("{:.0} %", share * 100.0));
        Cell::new(format!("{} {full}", limit.name.as_str()), look)
    };
    limits.into_iter().map(cell).collect()
}

/// Returns each health check with its state, those that do not pass first. The reason is a cell of
/// its own, so that a narrow terminal shows at least the state.
pub(super) fn checks(now: &Snapshot) -> Vec<Cell> {
    let mut checks: Vec<&Check> = now.checks.iter().collect();
    checks.sort_by_key(|check| (check.state.as_str() == "passed", !check.required));
    let cells = |check: &Check| {
        let (name, state) = (check.name.as_str(), check.state.as_str());
        if !["failed", "late"].contains(&state) {
            return vec![Cell::plain(format!("{name} {state}"))];
        }
        let (optional, look) =
            if check.required { ("", Look::Bad) } else { (" (optional)", Look::Warning) };
        let since = uptime(check.since_s);
        let state = Cell::new(format!("{name} {state}{optional} for {since}"), look);
        let why = check.message.iter().map(Text::as_str).filter(|why| !why.is_empty());
        let why = why.map(|why| Cell::new(format!("({why})"), Look::Dim));
        std::iter::once(state).chain(why).collect()
    };
    checks.into_iter().flat_map(cells).collect()
}

pub(super) fn loops(now: &Snapshot) -> Vec<Cell> {
    let cell = |event_loop: &EventLoop| {
        let (thread, connections) = (text(&event_loop.thread), count(event_loop.connections));
        let mut item = format!("{thread}: {connections} open, {} idle", count(event_loop.idle));
        if let Some(times) = event_loop.handed_over.filter(|&times| times > 0.0) {
            item.push_str(&format!(", handed over {}x", count(Some(times))));
        }
        Cell::plain(item)
    };
    now.loops.iter().map(cell).collect()
}

/// Returns what the idle connections wait for.
pub(super) fn idle(now: &Snapshot) -> Vec<Cell> {
    let cell = |idle: &Idle| format!("{} {}", idle.waits_for.as_str(), count(idle.count));
    now.idle.iter().map(|idle| Cell::plain(cell(idle))).collect()
}

/// Returns each reason that has occurred, with its count.
pub(super) fn reasons(reasons: &[Reason]) -> Vec<Cell> {
    let occurred = reasons.iter().filter(|reason| reason.count.is_some_and(|it| it > 0.0));
    let cell = |reason: &Reason| format!("{} {}", reason.reason.as_str(), count(reason.count));
    occurred.map(|reason| Cell::plain(cell(reason))).collect()
}

/// Returns the table of running calls, the longest first.
pub(super) fn calls(now: &Snapshot, width: usize) -> Vec<Line> {
    const COLUMNS: [Column; 6] = [
        Column { title: "TIME", size: Size::Number(7), from_width: 0 },
        Column { title: "RUNS", size: Size::Text(4), from_width: 60 },
        Column { title: "ROUTE", size: Size::Share(2), from_width: 0 },
        Column { title: "ITS THREAD", size: Size::Share(3), from_width: 0 },
        Column { title: "REQUEST", size: Size::Text(16), from_width: 110 },
        Column { title: "THREAD", size: Size::Text(14), from_width: 110 },
    ];
    let row = |call: &Call| {
        // The heading of the column already says `ITS THREAD`.
        let waits_for = call.waits_for.as_ref().map_or("", Text::as_str);
        let waits_for = waits_for
            .strip_prefix("its thread ")
            .or_else(|| waits_for.strip_prefix("it "))
            .unwrap_or(waits_for);
        vec![
            Cell::plain(millis(call.running_ms)),
            Cell::new(text(&call.runs), Look::Dim),
            Cell::plain(text(&call.route)),
            Cell::plain(waits_for),
            Cell::new(text(&call.request_id), Look::Dim),
            Cell::new(text(&call.thread), Look::Dim),
        ]
    };
    table(&COLUMNS, now.calls.iter().map(row).collect(), width)
}

/// Sorts routes, the highest value first. Unknown values come last.
pub(super) fn sorted(mut routes: Vec<(&Route, Rates)>, sort: Sort) -> Vec<(&Route, Rates)> {
    let key = |(route, rates): &(&Route, Rates)| match sort {
        // The total decides before there are rates, and among idle routes.
        Sort::Requests => (rates.requests, route.requests),
        Sort::P99 => (route.p99_ms, route.requests),
        Sort::Waiting => (rates.waiting, route.waiting_s),
        Sort::Computing => (rates.computing, route.computing_s),
    };
    routes.sort_by(|one, other| {
        let ((first, second), (other_first, other_second)) = (key(one), key(other));
        descending(first, other_first).then_with(|| descending(second, other_second))
    });
    routes
}

pub(super) fn routes(routes: &[(&Route, Rates)], sort: Sort, width: usize) -> Vec<Line> {
    let columns = [
        Column { title: "ROUTE", size: Size::Share(2), from_width: 0 },
        Column { title: "REQ/S", size: Size::Number(8), from_width: 0 },
        Column { title: "P99", size: Size::Number(8), from_width: 0 },
        Column { title: "MEDIAN", size: Size::Number(8), from_width: 90 },
        Column { title: "WAIT", size: Size::Number(7), from_width: 50 },
        Column { title: "COMP", size: Size::Number(7), from_width: 50 },
        Column { title: "ERR/S", size: Size::Number(6), from_width: 70 },
        Column { title: "ACTIVE", size: Size::Number(6), from_width: 100 },
        Column { title: "RUNS", size: Size::Text(4), from_width: 70 },
        Column { title: "WHY", size: Size::Share(1), from_width: 120 },
    ];
    let row = |(route, rates): &(&Route, Rates)| {
        let has_errors = rates.errors.is_some_and(|errors| errors > 0.0);
        let chosen = |sorts: Sort, text: String| {
            Cell::new(text, if sort == sorts { Look::Good } else { Look::Plain })
        };
        vec![
            Cell::plain(route.name()),
            chosen(Sort::Requests, rate(rates.requests)),
            chosen(Sort::P99, millis(route.p99_ms)),
            Cell::plain(millis(route.median_ms)),
            chosen(Sort::Waiting, rate(rates.waiting)),
            chosen(Sort::Computing, rate(rates.computing)),
            Cell::new(rate(rates.errors), if has_errors { Look::Bad } else { Look::Plain }),
            Cell::plain(count(route.active)),
            Cell::plain(text(&route.runs)),
            Cell::new(text(&route.why), Look::Dim),
        ]
    };
    table(&columns, routes.iter().map(row).collect(), width)
}

pub(super) fn stories(now: &Snapshot, width: usize) -> Vec<Line> {
    const COLUMNS: [Column; 4] = [
        Column { title: "AGO", size: Size::Number(7), from_width: 0 },
        Column { title: "KIND", size: Size::Text(7), from_width: 50 },
        Column { title: "STORY", size: Size::Share(1), from_width: 0 },
        Column { title: "REQUEST", size: Size::Text(16), from_width: 110 },
    ];
    let row = |story: &Story| {
        let ago = now.at_ms.zip(story.at_ms).map(|(now, then)| (now - then).max(0.0));
        let look = match story.kind.as_ref().map(Text::as_str) {
            Some("failed") => Look::Bad,
            _ => Look::Warning,
        };
        vec![
            Cell::plain(seconds(ago)),
            Cell::new(text(&story.kind), look),
            Cell::plain(story.text.as_str()),
            Cell::new(text(&story.request_id), Look::Dim),
        ]
    };
    table(&COLUMNS, now.stories.iter().map(row).collect(), width)
}

fn descending(one: Option<f64>, other: Option<f64>) -> std::cmp::Ordering {
    let value = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
    value(other).total_cmp(&value(one))
}

fn text(text: &Option<Text>) -> String {
    text.as_ref().map_or(UNKNOWN, Text::as_str).to_owned()
}

/// Returns a value that can be formatted, because a server may send any number.
fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

fn count(value: Option<f64>) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of the server that is too large is shown as the largest one"
    )]
    sane(value).map_or(UNKNOWN.to_owned(), |value| units::count(value.round() as u64))
}

fn rate(value: Option<f64>) -> String {
    sane(value).map_or(UNKNOWN.to_owned(), units::rate)
}

fn bytes(value: Option<f64>) -> String {
    sane(value).map_or(UNKNOWN.to_owned(), units::bytes)
}

fn millis(value: Option<f64>) -> String {
    sane(value).map_or(UNKNOWN.to_owned(), |millis| units::time(millis * 1e6))
}

/// Formats how long ago something was, from milliseconds.
fn seconds(value: Option<f64>) -> String {
    sane(value).map_or(UNKNOWN.to_owned(), |millis| match millis / 1e3 {
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 6000.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    })
}

fn uptime(value: Option<f64>) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of the server that is too large is shown as the largest one"
    )]
    let seconds = match sane(value) {
        None => return UNKNOWN.to_owned(),
        Some(seconds) => seconds as u64,
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        for (seconds_ago, shown) in
            [(0.0, "0 s"), (99.0, "99 s"), (120.0, "2 min"), (5400.0, "90 min"), (7200.0, "2 h")]
        {
            assert_eq!(seconds(Some(seconds_ago * 1e3)), shown);
        }
        for (seconds, shown) in [
            (59.0, "59 s"),
            (61.0, "1 min 1 s"),
            (3661.0, "1 h 1 min"),
            (2.0 * 86_400.0 + 5.0 * 3600.0, "2 d 5 h"),
        ] {
            assert_eq!(uptime(Some(seconds)), shown);
        }
    }

    #[test]
    fn a_story_is_not_younger_than_now() {
        let feed = include_bytes!("../../tests/it/feed-1.json");
        let mut now = Snapshot::parse(feed).unwrap();
        now.stories.truncate(1);
        now.stories[0].at_ms = now.at_ms.map(|at| at + 5000.0);
        let text: String = stories(&now, 80).into_iter().flatten().map(|cell| cell.text).collect();
        assert!(text.contains("0 s"), "{text}");
    }
}
