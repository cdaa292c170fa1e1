//! The stories of recent requests that were slow, failed or refused.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use filoplume_runtime::{Exchange, Ran, Timing};
use parking_lot::Mutex;

/// How many stories are kept.
const STORIES_MAX: usize = 100;

/// Why a request has a [`Story`].
///
/// ```
/// use filoplume::extract::StoryKind;
///
/// assert_eq!(StoryKind::Refused.to_string(), "refused");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoryKind {
    /// It took longer than [`App::slow_after`](crate::App::slow_after).
    Slow,
    /// Its handler or middleware answered with a status of 500 or more. It may have been slow as
    /// well: then its [timing](Story::timing) says so.
    Failed,
    /// The server refused it without calling its handler.
    Refused,
}

impl StoryKind {
    /// The number of kinds.
    pub(super) const COUNT: usize = 3;

    /// Returns `slow`, `failed` or `refused`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for StoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
    /// Why it was noted.
    pub kind: StoryKind,
    /// The ID of the request, from [`RequestIds`](crate::middleware::RequestIds) or the response's
    /// `x-request-id`.
    pub request_id: Option<String>,
    /// The ID of the trace, from [`Tracing`](crate::middleware::Tracing).
    pub trace_id: Option<String>,
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
    /// What the request waited for before its handler was called, if it was slow because of that: a
    /// thread or a permit. It also says which route held the threads.
    pub waited_for: Option<String>,
    /// Why the request was refused: which limit it met, and which routes held what it waited for.
    pub refused: Option<String>,
    /// What kind of error a failed request ended with: the name of its type, or `a panic`. It has
    /// no text of the error, which is in the log only. `None` if the error was a text or a status.
    pub cause: Option<String>,
    /// Whether the connection failed before the response was written.
    pub is_broken: bool,
}

impl Story {
    pub(super) fn of(exchange: &Exchange) -> Self {
        Self {
            at: SystemTime::now(),
            kind: if exchange.refusal.is_some() { StoryKind::Refused } else { StoryKind::Slow },
            request_id: None,
            trace_id: None,
            methods: String::new(),
            pattern: String::new(),
            status: exchange.status.as_u16(),
            timing: Some(exchange.timing),
            ran: exchange.ran,
            waited_for: None,
            refused: None,
            cause: None,
            is_broken: exchange.is_broken,
        }
    }

    pub(super) fn of_failure(status: u16) -> Self {
        Self {
            at: SystemTime::now(),
            kind: StoryKind::Failed,
            request_id: None,
            trace_id: None,
            methods: String::new(),
            pattern: String::new(),
            status,
            timing: None,
            ran: None,
            waited_for: None,
            refused: None,
            cause: None,
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
        if let Some(cause) = &self.cause {
            write!(f, ", failed with {cause}")?;
        }
        if self.is_broken {
            f.write_str(", the connection failed")?;
        }
        if let Some(waited_for) = &self.waited_for {
            write!(f, ", waited for {waited_for}")?;
        }
        if let Some(refused) = &self.refused {
            write!(f, ", refused: {refused}")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, ", request {id}")?;
        }
        match &self.trace_id {
            Some(id) => write!(f, ", trace {id}"),
            None => Ok(()),
        }
    }
}

/// Returns a time in full microseconds, which is enough for people.
fn rounded(time: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// A story with the index of its route.
#[derive(Debug)]
struct Kept {
    number: u64,
    route: usize,
    story: Story,
}

/// The recent stories, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Stories {
    kept: Mutex<VecDeque<Kept>>,
    /// The number of the next story.
    next: AtomicU64,
}

impl Stories {
    /// Keeps a story. Returns its number.
    pub(super) fn note(&self, route: usize, story: Story) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.len() == STORIES_MAX {
            let displaced = displaced(&kept);
            kept.remove(displaced);
        }
        kept.push_back(Kept { number, route, story });
        number
    }

    /// Replaces the story with this number, or keeps one more if that was displaced.
    pub(super) fn replace(&self, number: u64, route: usize, story: Story) {
        if let Some(kept) = self.kept.lock().iter_mut().find(|kept| kept.number == number) {
            kept.story = story;
            return;
        }
        self.note(route, story);
    }

    /// Returns the stories, the newest first.
    pub(super) fn read(&self) -> Vec<Story> {
        self.kept.lock().iter().rev().map(|kept| kept.story.clone()).collect()
    }
}

/// Returns the index of the story that makes room for another: the oldest one of the route that has
/// the most stories of the most frequent kind. So a flood displaces its own stories. A kind that
/// has a third of the places loses none to others.
fn displaced(kept: &VecDeque<Kept>) -> usize {
    let mut kinds = [0_usize; StoryKind::COUNT];
    for Kept { story, .. } in kept {
        kinds[story.kind.index()] += 1;
    }
    let most = kinds.iter().max().copied().unwrap_or(0);
    let is_of_kind = |story: &Story| kinds[story.kind.index()] == most;
    let mut routes = HashMap::new();
    for Kept { route, .. } in kept.iter().filter(|kept| is_of_kind(&kept.story)) {
        *routes.entry(*route).or_insert(0_usize) += 1;
    }
    let most = routes.values().max().copied().unwrap_or(0);
    kept.iter()
        .position(|kept| is_of_kind(&kept.story) && routes.get(&kept.route) == Some(&most))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(kind: StoryKind, status: u16) -> Story {
        Story { kind, ..Story::of_failure(status) }
    }

    fn statuses(stories: &Stories) -> Vec<u16> {
        stories.read().iter().map(|story| story.status).collect()
    }

    #[test]
    fn the_newest_stories_are_kept() {
        let stories = Stories::default();
        for status in 0..250 {
            stories.note(0, Story::of_failure(status));
        }
        assert_eq!(statuses(&stories), (150..250).rev().collect::<Vec<u16>>());
    }

    /// One slow request of another route, one failure of another route, one refusal.
    #[test]
    fn a_flood_displaces_only_itself() {
        for flood in [StoryKind::Slow, StoryKind::Failed, StoryKind::Refused] {
            let stories = Stories::default();
            for kind in [StoryKind::Slow, StoryKind::Failed, StoryKind::Refused] {
                stories.note(1, story(kind, 1));
            }
            for _ in 0..1000 {
                stories.note(0, story(flood, 0));
            }
            let read = statuses(&stories);
            assert_eq!(read.len(), STORIES_MAX);
            assert_eq!(read[STORIES_MAX - 3..], [1, 1, 1], "{flood}");
        }
    }

    /// Failures of many routes at once do not push out the other kinds, nor one route the others.
    #[test]
    fn kinds_and_routes_share_the_places() {
        let stories = Stories::default();
        for number in 0..40 {
            stories.note(0, story(StoryKind::Slow, number));
        }
        for number in 0..3000 {
            stories.note(1 + number % 200, story(StoryKind::Failed, 1));
        }
        let slow = stories.read().iter().filter(|story| story.kind == StoryKind::Slow).count();
        assert_eq!(slow, 40, "less than half of the places");
        for _ in 0..1000 {
            stories.note(500, story(StoryKind::Failed, 2));
        }
        let of = |status| statuses(&stories).iter().filter(|found| **found == status).count();
        assert!(of(1) >= 55 && of(2) >= 1, "{} and {}", of(1), of(2));
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
        story.waited_for = Some("a thread while GET /report had 8".to_owned());
        story.request_id = Some("17".to_owned());
        story.trace_id = Some("4bf9".to_owned());
        assert_eq!(
            story.to_string(),
            "GET /orders/{id}: 503 after 1.200345s (queue 1.200345s), waited for a thread while \
             GET /report had 8, refused: GET /report holds 8 of 8 threads, request 17, trace 4bf9"
        );
    }

    #[test]
    fn a_flood_of_one_kind_displaces_no_other_kind_of_its_route() {
        let stories = Stories::default();
        stories.note(0, story(StoryKind::Failed, 500));
        for _ in 0..1000 {
            stories.note(0, story(StoryKind::Slow, 200));
        }
        assert_eq!(statuses(&stories).last(), Some(&500));
    }

    #[test]
    fn a_story_that_was_displaced_is_told_anew() {
        let stories = Stories::default();
        let number = stories.note(0, story(StoryKind::Slow, 1));
        stories.replace(number, 0, story(StoryKind::Slow, 2));
        assert_eq!(statuses(&stories), [2]);
        stories.replace(number + 1, 0, story(StoryKind::Slow, 3));
        assert_eq!(statuses(&stories), [3, 2]);
    }
}
