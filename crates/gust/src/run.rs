//! The result of a run: plain values, from which every report is made and which can be saved in a
//! file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::collector::{Collected, Interval};
use crate::cpu::CpuTime;
use crate::histogram::Latency;
use crate::outbox::Finished;
use crate::plan::{Plan, Protocol};
use crate::tally::{Errors, Handshakes};
use crate::units::{Nanos, SECOND};

/// A thread that ran for more than this share of the time may have been the bottleneck.
const BUSY: f64 = 0.9;

/// If a thread waited for a core for more than this share of the time, the latencies include that.
const KEPT_WAITING: f64 = 0.1;

/// If by Little's law less than this share of the expected requests is in flight, most connections
/// starve.
const STARVING: f64 = 0.5;

/// If the connections are opened over more than this share of the run, too few are in flight on
/// average, although none starves.
const OPENING: f64 = 0.1;

/// In a shorter run, the time to open the connections affects the figures.
const LITTLE_SECONDS: f64 = 0.25;

/// The version of the file format. A file of another version is refused.
pub(crate) const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) format: u32,
    pub(crate) target: String,
    pub(crate) load: Load,
    /// The time during which requests were counted.
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    /// Requests that were sent and had no response at the end of the run.
    pub(crate) unanswered: u64,
    /// Requests that were due and not sent, because no connection was available.
    pub(crate) never_sent: u64,
    /// How long the oldest of these requests had waited, in nanoseconds.
    pub(crate) longest_wait: u64,
    pub(crate) errors: Errors,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) connections: Connections,
    /// Latencies from the time at which a request was due, in nanoseconds.
    pub(crate) latency: Latency,
    /// Latencies from the time at which a request was sent. Only at a constant rate.
    pub(crate) uncorrected: Option<Latency>,
    pub(crate) connect: Latency,
    /// Only with TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handshakes: Option<Handshakes>,
    pub(crate) client: Client,
    pub(crate) server: Option<CpuTime>,
    #[serde(rename = "course")]
    pub(crate) timeline: Timeline,
}

/// The load that the plan asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) protocol: String,
    pub(crate) connections: u64,
    pub(crate) threads: u64,
    pub(crate) is_blocking: bool,
    pub(crate) depth: u64,
    pub(crate) keep_alive: bool,
    pub(crate) rate: Option<f64>,
    pub(crate) duration_seconds: Option<f64>,
    pub(crate) requests: Option<u64>,
    pub(crate) warmup_seconds: f64,
    pub(crate) request_bytes: u64,
    /// The time over which connections are opened at a limited rate. It begins with the warm-up.
    #[serde(default)]
    pub(crate) opening_seconds: f64,
    /// Whether connections sent nothing after their first request.
    #[serde(default)]
    pub(crate) holds: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) asked: u64,
    /// Connections that were open at least once.
    pub(crate) opened: u64,
    /// Connections with at least one response.
    pub(crate) served: u64,
    pub(crate) never_served: u64,
    /// How many were open at the end, if they were held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<u64>,
    /// How many times a connection was opened again.
    pub(crate) reopened: u64,
    /// The smallest number of responses on a connection.
    pub(crate) least: u64,
    pub(crate) median: u64,
    pub(crate) most: u64,
}

/// What the run cost the client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) cpu: CpuTime,
    /// The share of the time in which the busiest thread ran.
    pub(crate) busiest: f64,
    /// The largest share of the time in which a thread waited for a core.
    pub(crate) kept_waiting: f64,
}

/// The figures over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timeline {
    #[serde(rename = "seconds_per_moment")]
    pub(crate) seconds_per_interval: f64,
    #[serde(rename = "moments")]
    pub(crate) intervals: Vec<Interval>,
}

/// CPU time while requests were counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuUsed {
    pub(crate) client: CpuTime,
    pub(crate) server: Option<CpuTime>,
}

impl Run {
    pub(crate) fn new(
        plan: &Plan,
        collected: Collected,
        threads: &[Finished],
        cpu: CpuUsed,
        tick: Nanos,
    ) -> Self {
        let counts_from = crate::units::nanos(plan.warmup);
        let ended = threads.iter().map(|thread| thread.ended).max().unwrap_or(0);
        let total = collected.total;
        Self {
            format: FORMAT,
            target: plan.target.clone(),
            load: Load::of(plan),
            seconds: seconds(ended.saturating_sub(counts_from)),
            requests: total.requests,
            responses: total.responses,
            unanswered: threads.iter().map(|thread| thread.unanswered).sum(),
            never_sent: threads.iter().map(|thread| thread.never_sent).sum(),
            longest_wait: threads.iter().map(|thread| thread.longest_wait).max().unwrap_or(0),
            errors: total.errors,
            statuses: total.statuses.into_iter().collect(),
            bytes_sent: total.bytes_sent,
            bytes_received: total.bytes_received,
            connections: Connections::of(threads, plan.holds),
            latency: total.latency.summary(),
            uncorrected: plan.rate.map(|_| total.uncorrected.summary()),
            connect: total.connect.summary(),
            handshakes: plan.tls.as_ref().map(|_| total.handshakes),
            client: Client {
                cpu: cpu.client,
                busiest: threads.iter().map(|each| each.thread.busy()).fold(0.0, f64::max),
                kept_waiting: threads
                    .iter()
                    .map(|each| each.thread.kept_waiting())
                    .fold(0.0, f64::max),
            },
            server: cpu.server,
            timeline: Timeline {
                seconds_per_interval: seconds(tick.saturating_mul(collected.ticks_per_interval)),
                intervals: collected.timeline,
            },
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        float(self.responses) / self.seconds.max(1e-9)
    }

    /// Returns the microseconds of CPU time per response.
    pub(crate) fn per_response(&self, seconds: f64) -> f64 {
        seconds * 1e6 / float(self.responses.max(1))
    }

    /// Returns the share of requests that failed.
    pub(crate) fn error_share(&self) -> f64 {
        float(self.errors.total()) / float(self.requests.max(self.errors.total()).max(1))
    }

    /// Returns the average number of requests in flight by Little's law: responses per second times
    /// mean latency.
    pub(crate) fn in_flight(&self) -> f64 {
        self.per_second() * self.latency.mean / 1e9
    }

    /// Returns the reasons to doubt the figures.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Connections { asked, opened, never_served, held, .. } = self.connections;
        if let Some(held) = held.filter(|&held| held < asked) {
            warnings.push(format!("only {held} of {asked} connections were held to the end"));
        }
        if self.load.holds && self.responses == 0 {
            // The server sent nothing, which may be intended: a run can measure idle connections.
        } else if self.responses == 0 {
            warnings.push("no request was answered".to_owned());
        } else if never_served > 0 {
            warnings.push(format!(
                "{never_served} of {asked} connections were never served: the figures describe \
                 only the others"
            ));
        }
        if opened < asked && self.responses > 0 {
            warnings.push(format!("only {opened} of {asked} connections could be opened"));
        }
        warnings.extend(self.starvation());
        let missing = self.unanswered + self.never_sent;
        let usual = self.load.connections * self.load.depth;
        if missing > 0 && (missing > usual || float(self.longest_wait) > self.latency.max) {
            warnings.push(format!(
                "{missing} requests were unanswered at the end, one of them for {}: no percentile \
                 includes them",
                crate::units::time(float(self.longest_wait))
            ));
        }
        warnings.extend(self.client.warnings());
        if self.load.requests.is_some_and(|asked| self.requests < asked)
            && self.load.duration_seconds.is_none()
        {
            warnings.push(format!("only {} of the requests could be sent", self.requests));
        }
        warnings
    }

    /// Returns a warning if by Little's law too few requests were in flight, which only a closed
    /// loop keeps at a fixed number.
    fn starvation(&self) -> Option<String> {
        let wanted = float(self.connections.opened * self.load.depth);
        let is_closed_loop = self.load.rate.is_none()
            && self.load.keep_alive
            && !self.load.is_blocking
            && !self.load.holds;
        let opening = self.load.opening_seconds - self.load.warmup_seconds;
        let is_long = self.seconds >= LITTLE_SECONDS && opening <= self.seconds * OPENING;
        let is_starved =
            is_closed_loop && is_long && self.responses > 0 && self.in_flight() < wanted * STARVING;
        is_starved.then(|| {
            format!(
                "by requests/s x latency, {:.1} requests were in flight, but {wanted:.0} should \
                 have been: most connections starve (Little's law)",
                self.in_flight()
            )
        })
    }
}

impl Client {
    /// Returns the reasons why the client may have been the bottleneck.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.busiest > BUSY {
            warnings.push(format!(
                "a client thread was {:.0} % busy: the client is the bottleneck (try a higher -t)",
                self.busiest * 100.0
            ));
        }
        if self.kept_waiting > KEPT_WAITING {
            warnings.push(format!(
                "a thread of the client waited for a core {:.0} % of the time: latencies include \
                 that",
                self.kept_waiting * 100.0
            ));
        }
        warnings
    }
}

impl Load {
    fn of(plan: &Plan) -> Self {
        let protocol = match plan.protocol {
            Protocol::Http if plan.tls.is_some() => "https",
            Protocol::Http => "http",
            Protocol::Echo => "tcp",
            Protocol::WebSocket => "websocket",
            Protocol::Events => "events",
        };
        Self {
            protocol: protocol.to_owned(),
            connections: plan.connections as u64,
            threads: plan.threads as u64,
            is_blocking: plan.is_blocking,
            depth: plan.depth as u64,
            keep_alive: plan.keep_alive,
            rate: plan.rate,
            duration_seconds: plan.end.after.map(|after| after.as_secs_f64()),
            requests: plan.end.requests,
            warmup_seconds: plan.warmup.as_secs_f64(),
            request_bytes: plan.requests.template(0).bytes.len() as u64,
            opening_seconds: plan
                .opening_rate()
                .map_or(0.0, |rate| float(plan.connections as u64) / rate),
            holds: plan.holds,
        }
    }
}

impl Connections {
    fn of(threads: &[Finished], holds: bool) -> Self {
        let mut served: Vec<u64> =
            threads.iter().flat_map(|thread| thread.served.iter().copied()).collect();
        served.sort_unstable();
        let opened = || threads.iter().flat_map(|thread| thread.opened.iter().copied());
        let never_served = served.iter().filter(|&&count| count == 0).count() as u64;
        Self {
            asked: served.len() as u64,
            opened: opened().filter(|&times| times > 0).count() as u64,
            served: served.len() as u64 - never_served,
            never_served,
            held: holds.then(|| threads.iter().map(|thread| thread.held as u64).sum()),
            reopened: opened().map(|times| times.saturating_sub(1)).sum(),
            least: served.first().copied().unwrap_or(0),
            median: served.get(served.len() / 2).copied().unwrap_or(0),
            most: served.last().copied().unwrap_or(0),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 9 * 10^15")]
fn float(value: u64) -> f64 {
    value as f64
}

fn seconds(nanos: Nanos) -> f64 {
    float(nanos) / float(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::cpu::Spent;
    use crate::report::sample;
    use crate::tally::Slice;

    fn finished(served: &[u64], opened: &[u64], longest_wait: Nanos) -> Finished {
        Finished {
            served: served.to_vec(),
            opened: opened.to_vec(),
            held: 0,
            unanswered: 2,
            never_sent: 3,
            longest_wait,
            thread: Spent { cpu: longest_wait, waited: longest_wait / 2, elapsed: 100 },
            ended: 3 * SECOND + longest_wait,
        }
    }

    #[test]
    fn a_run_has_the_sums_and_the_longest_wait_of_its_threads() {
        let plan = args::plan(":1 --warmup 1s -d 2s").unwrap();
        let collected =
            Collected { total: Slice::new(), timeline: Vec::new(), ticks_per_interval: 3 };
        let threads = [
            finished(&[0, 7], &[0, 1], 10),
            finished(&[9, 2], &[4, 1], 40),
            finished(&[], &[], 20),
        ];
        let cpu = CpuUsed { client: CpuTime::default(), server: None };
        let run = Run::new(&plan, collected, &threads, cpu, SECOND / 10);
        assert_eq!((run.unanswered, run.never_sent, run.longest_wait), (6, 9, 40));
        assert_eq!((run.seconds, run.client.busiest), (2.000_000_04, 0.4));
        assert_eq!(run.client.kept_waiting, 0.2);
        assert_eq!(run.timeline.seconds_per_interval, 0.3);
        let Connections {
            asked, opened, served, never_served, reopened, least, median, most, ..
        } = run.connections;
        assert_eq!((asked, opened, served, never_served, reopened), (4, 3, 3, 1, 3));
        assert_eq!((least, median, most), (0, 7, 9));
    }

    #[test]
    fn the_load_has_the_time_over_which_connections_are_opened() {
        let of = |arguments: &str| Load::of(&args::plan(arguments).unwrap()).opening_seconds;
        assert_eq!(of(":1 -c 50"), 0.0);
        assert_eq!(of(":1 -c 50 --ramp 5s"), 5.0);
        assert_eq!(of(":1 -c 50 --connect-rate 5"), 10.0);
        assert_eq!(of(":1 -c 50 --ramp 5s --connect-rate 5"), 10.0);
        assert_eq!(of(":1 -c 50 --ramp 5s -r 100"), 0.0, "the ramp is that of the rate");
    }

    #[test]
    fn figures_are_per_second_and_per_response() {
        let run = sample::run();
        assert_eq!(run.per_second(), 19_975.0);
        assert_eq!(run.per_response(0.0799), 1.0);
        assert_eq!(run.error_share(), 60.0 / 80_000.0);
        assert_eq!(Run { requests: 0, ..sample::run() }.error_share(), 1.0);
        assert!((run.in_flight() - 19_975.0 * run.latency.mean / 1e9).abs() < 1e-9);
    }

    /// Returns whether a warning contains this text after `change`.
    fn warns(of: &str, change: impl FnOnce(&mut Run)) -> bool {
        let mut run = sample::run();
        change(&mut run);
        run.warnings().iter().any(|warning| warning.contains(of))
    }

    #[test]
    fn warnings_begin_just_above_their_thresholds() {
        assert!(warns("1 of 64 connections were never served", |_| {}));
        assert!(!warns("never served", |run| run.connections.never_served = 0));
        assert!(warns("no request was answered", |run| run.responses = 0));
        assert!(!warns("could be opened", |_| {}));
        assert!(!warns("could be opened", |run| {
            (run.connections.opened, run.responses) = (63, 0);
        }));
        let held = "only 63 of 64 connections were held";
        assert!(!warns("were held", |run| run.connections.held = Some(64)));
        assert!(warns(held, |run| run.connections.held = Some(63)));
        assert!(warns("only 63 of 64", |run| run.connections.opened = 63));
        let busy = "is the bottleneck";
        assert!(
            !warns(busy, |run| run.client.busiest = 0.9)
                && warns(busy, |run| run.client.busiest = 0.91)
        );
        let kept = "waited for a core";
        assert!(!warns(kept, |run| run.client.kept_waiting = 0.1));
        assert!(warns(kept, |run| run.client.kept_waiting = 0.11));
        let sent = "of the requests could be sent";
        let asked = |requests, seconds| {
            move |run: &mut Run| {
                run.load.requests = Some(requests);
                run.load.duration_seconds = seconds;
            }
        };
        assert!(warns(sent, asked(80_001, None)) && !warns(sent, asked(80_000, None)));
        assert!(!warns(sent, asked(80_001, Some(4.0))), "the duration ended the run");
    }

    #[test]
    fn unanswered_requests_cause_a_warning_if_they_are_many_or_waited_longest() {
        let missing = "unanswered at the end";
        assert!(!warns(missing, |_| {}), "42 requests of 64 connections");
        assert!(
            !warns(missing, |run| run.unanswered = 62) && warns(missing, |run| run.unanswered = 63)
        );
        assert!(!warns(missing, |run| (run.unanswered, run.load.depth) = (63, 2)));
        assert!(!warns(missing, |run| run.longest_wait = 100_100_000));
        assert!(warns(missing, |run| run.longest_wait = 100_100_001));
        let none =
            |run: &mut Run| (run.unanswered, run.never_sent, run.longest_wait) = (0, 0, u64::MAX);
        assert!(!warns(missing, none));
    }

    #[test]
    fn connections_starve_if_less_than_half_of_the_requests_are_in_flight() {
        let closed = |mean: f64, seconds: f64| {
            move |run: &mut Run| {
                run.load.rate = None;
                (run.seconds, run.responses) = (seconds, 1000);
                run.latency.mean = mean * seconds * 1e6;
            }
        };
        // With 1000 responses in `seconds`, a mean latency of `mean` thousandths of that time means
        // `mean` requests in flight.
        assert!(warns("Little", closed(31.9, 4.0)) && !warns("Little", closed(32.1, 4.0)));
        assert!(warns("Little", closed(31.9, 0.25)) && !warns("Little", closed(31.9, 0.24)));
        let opened_over = |opening: f64, warmup: f64| {
            warns("Little", |run| {
                closed(31.9, 4.0)(run);
                (run.load.opening_seconds, run.load.warmup_seconds) = (opening, warmup);
            })
        };
        assert!(opened_over(0.4, 0.0) && !opened_over(0.41, 0.0));
        assert!(opened_over(1.4, 1.0) && !opened_over(1.5, 1.0), "the warm-up does not count");
        for excuse in [
            |run: &mut Run| run.load.is_blocking = true,
            |run: &mut Run| run.load.keep_alive = false,
            |run: &mut Run| run.load.holds = true,
        ] {
            let starved = closed(1.0, 4.0);
            assert!(!warns("Little", |run| {
                starved(run);
                excuse(run);
            }));
        }
        let rate = |run: &mut Run| run.latency.mean = 1.0;
        assert!(
            !warns("Little", rate),
            "at a constant rate the connections do not determine the load"
        );
    }
}
