//! The stories of recent requests that were slow, failed or refused.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use filoplume_runtime::{Exchange, Ran, Timing};
use parking_lot::Mutex;

/// How many stories are kept.
const STORIES_MAX: usize = 100;

/// The average time between two stories, and how many may follow each other at once. A flood of
/// failures would otherwise cost more than its responses.
const STORY_EVERY: Duration = Duration::from_millis(10);
const BURST: u32 = 50;

/// What happened to a request that was slow, failed or was refused.
///
/// It contains the pattern of the route, but no path, no header and no content.
///
/// ```
/// use filoplume::extract::Observed;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/broken", || Err::<(), _>(Error::internal("the disk is full")))
///     .get("/recent", |observed: Observed| {
///         observed.recent().iter().map(|story| format!("{story}\n")).collect::<String>()
///     });
/// let client = app.test();
/// client.get("/broken").send();
/// client.get("/recent").send().assert_text("GET /broken: 500\n");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Story {
    /// When it was noted.
    pub at: SystemTime,
    /// The ID of the request, if the response has it in `x-request-id`: see
    /// [`RequestIds`](crate::middleware::RequestIds).
    pub request_id: Option<String>,
    /// The methods of the route, such as `GET`. Empty for a request that no route answers.
    pub methods: String,
    /// The pattern of the route.
    pub pattern: String,
    /// The status of the response.
    pub status: u16,
    /// Where the time went. `None` for a failure that was too quick to be measured.
    pub timing: Option<Timing>,
    /// Where the handler ran. `None` if it was not called, or not measured.
    pub ran: Option<Ran>,
    /// Why the request was refused: which limit it met, and which routes held what it waited for.
    pub refused: Option<String>,
    /// Whether the connection failed before the response was written.
    pub is_broken: bool,
}

impl Story {
    pub(super) fn of(exchange: &Exchange) -> Self {
        Self {
            at: SystemTime::now(),
            request_id: None,
            methods: String::new(),
            pattern: String::new(),
            status: exchange.status.as_u16(),
            timing: Some(exchange.timing),
            ran: exchange.ran,
            refused: None,
            is_broken: exchange.is_broken,
        }
    }

    pub(super) fn of_failure(status: u16) -> Self {
        Self {
            at: SystemTime::now(),
            request_id: None,
            methods: String::new(),
            pattern: String::new(),
            status,
            timing: None,
            ran: None,
            refused: None,
            is_broken: false,
        }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { methods, pattern, status, .. } = self;
        let separator = if methods.is_empty() { "" } else { " " };
        write!(f, "{methods}{separator}{pattern}: {status}")?;
        if let Some(timing) = &self.timing {
            write!(f, " after {:?}", rounded(timing.total()))?;
            let phases = timing.phases().into_iter().filter(|(_, time)| !rounded(*time).is_zero());
            for (index, (name, time)) in phases.enumerate() {
                let separator = if index == 0 { " (" } else { ", " };
                write!(f, "{separator}{name} {:?}", rounded(time))?;
            }
            if !rounded(timing.total()).is_zero() {
                f.write_str(")")?;
            }
        }
        if self.is_broken {
            f.write_str(", the connection failed")?;
        }
        if let Some(refused) = &self.refused {
            write!(f, ", refused: {refused}")?;
        }
        match &self.request_id {
            Some(id) => write!(f, ", request {id}"),
            None => Ok(()),
        }
    }
}

/// Returns a time in full microseconds, which is enough for people.
fn rounded(time: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// The recent stories, the newest last.
#[derive(Debug)]
pub(super) struct Stories {
    kept: Mutex<VecDeque<Story>>,
    /// When all stories so far would have been noted at an even pace, in microseconds after the
    /// start.
    paced_us: AtomicU64,
    started: Instant,
}

impl Default for Stories {
    fn default() -> Self {
        Self {
            kept: Mutex::new(VecDeque::new()),
            paced_us: AtomicU64::new(0),
            started: Instant::now(),
        }
    }
}

impl Stories {
    /// Returns whether a story may be noted now. Only one of several threads gets the moment.
    pub(super) fn may_note(&self) -> bool {
        self.may_note_at(self.started.elapsed())
    }

    fn may_note_at(&self, now: Duration) -> bool {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let paced_us = self.paced_us.load(Ordering::Relaxed);
        let next_us = paced_us.max(us(now)) + us(STORY_EVERY);
        next_us <= us(now + STORY_EVERY * BURST)
            && self
                .paced_us
                .compare_exchange(paced_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn note(&self, story: Story) {
        let mut kept = self.kept.lock();
        if kept.len() == STORIES_MAX {
            kept.pop_front();
        }
        kept.push_back(story);
    }

    /// Returns the stories, the newest first.
    pub(super) fn read(&self) -> Vec<Story> {
        self.kept.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stories_are_kept() {
        let stories = Stories::default();
        for status in 0..250 {
            stories.note(Story::of_failure(status));
        }
        let read: Vec<u16> = stories.read().iter().map(|story| story.status).collect();
        assert_eq!(read, (150..250).rev().collect::<Vec<u16>>());
    }

    #[test]
    fn a_flood_is_noted_at_an_even_pace() {
        let stories = Stories::default();
        let at = |ms: u64| Duration::from_millis(ms);
        let noted = (0..1000).filter(|ms| stories.may_note_at(at(*ms))).count();
        assert_eq!(noted, 50 + 99);
        let noted = (0..1000).filter(|_| stories.may_note_at(at(60_000))).count();
        assert_eq!(noted, 50);
    }

    #[test]
    fn a_story_is_one_line() {
        let mut story = Story::of_failure(503);
        (story.methods, story.pattern) = ("GET".to_owned(), "/orders/{id}".to_owned());
        assert_eq!(story.to_string(), "GET /orders/{id}: 503");
        story.timing = Some(Timing::default());
        assert_eq!(story.to_string(), "GET /orders/{id}: 503 after 0ns");
        let mut timing = Timing::default();
        timing.queue = Duration::from_nanos(1_200_345_678);
        timing.turn = Duration::from_nanos(300);
        story.timing = Some(timing);
        story.refused = Some("GET /report holds 8 of 8 threads".to_owned());
        story.request_id = Some("17".to_owned());
        assert_eq!(
            story.to_string(),
            "GET /orders/{id}: 503 after 1.200345s (queue 1.200345s), refused: GET /report holds 8 \
             of 8 threads, request 17"
        );
    }
}
