//! Shows the progress of a run on standard error: a bar on a terminal, otherwise a line for every
//! tenth.

use std::io::{IsTerminal, stderr};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::collector::{Live, Observer};
use crate::histogram::Histogram;
use crate::plan::Plan;
use crate::units;

/// How long figures are gathered before they are shown. With a shorter time they would flicker.
const SHOWN_SECONDS: f64 = 0.5;

const STEPS: u64 = 1000;

/// Shows the progress of a run.
pub(crate) struct Progress {
    style: Style,
    start: Instant,
    warmup_seconds: f64,
    end_seconds: Option<f64>,
    end_requests: Option<u64>,
    recent: Recent,
    /// The number of tenths for which a line was written.
    told: u64,
}

enum Style {
    Quiet,
    Bar(ProgressBar),
    Lines,
}

/// The figures since the last ones were shown.
struct Recent {
    since: Instant,
    responses: u64,
    latency: Histogram,
}

impl Progress {
    pub(crate) fn new(plan: &Plan, is_quiet: bool) -> Self {
        let style = match (is_quiet, stderr().is_terminal()) {
            (true, _) => Style::Quiet,
            (false, true) => Style::Bar(bar()),
            (false, false) => Style::Lines,
        };
        let start = Instant::now();
        // The responses of the warm-up are not counted, so its time is not either.
        let since = start.checked_add(plan.warmup).unwrap_or(start);
        Self {
            style,
            start,
            warmup_seconds: plan.warmup.as_secs_f64(),
            end_seconds: plan.end.after.map(|after| after.as_secs_f64()),
            end_requests: plan.end.requests,
            recent: Recent { since, responses: 0, latency: Histogram::new() },
            told: 0,
        }
    }

    /// Returns the share of the run that is done, by time or by requests, whichever is larger.
    fn done(&self, live: &Live) -> f64 {
        let elapsed = self.start.elapsed().as_secs_f64() - self.warmup_seconds;
        let of_time = self.end_seconds.map_or(0.0, |end| elapsed / end);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let of_requests =
            self.end_requests.map_or(0.0, |end| live.responses_total as f64 / end as f64);
        of_time.max(of_requests).clamp(0.0, 1.0)
    }
}

impl Observer for Progress {
    fn update(&mut self, live: &Live) {
        if matches!(self.style, Style::Quiet) {
            return;
        }
        self.recent.responses += live.responses;
        self.recent.latency.add(&live.latency);
        if live.is_warm_up && self.warmup_seconds > 0.0 {
            if let Style::Bar(bar) = &self.style {
                bar.set_message("warming up");
            }
            return;
        }
        let done = self.done(live);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 1"
        )]
        let step = (done * STEPS as f64) as u64;
        let tenth = step * 10 / STEPS;
        let seconds = self.recent.since.elapsed().as_secs_f64();
        let is_due = match &self.style {
            Style::Bar(bar) => {
                bar.set_position(step);
                seconds >= SHOWN_SECONDS
            }
            _ => tenth > self.told && tenth < 10,
        };
        if !is_due {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = units::rate(self.recent.responses as f64 / seconds.max(1e-3));
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let p99 = units::time(self.recent.latency.percentile(99.0) as f64);
        let errors = match live.errors_total {
            0 => String::new(),
            count => format!("  {} errors", units::count(count)),
        };
        match &self.style {
            Style::Bar(bar) => bar.set_message(format!("{rate}/s  p99 {p99}{errors}")),
            _ => eprintln!("{:>3} %  {rate}/s  p99 {p99}{errors}", tenth * 10),
        }
        self.told = tenth;
        self.recent.since = Instant::now();
        self.recent.responses = 0;
        self.recent.latency.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Style::Bar(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32} {percent:>3} %  {elapsed}  {msg}")
        .expect("the template is well-formed")
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr()).with_style(style)
}
