//! What the engine measures of one request and its response.

use std::time::Duration;

use http::StatusCode;

use crate::budget::permits::Permits;
use crate::budget::refusal::Refusal;
use crate::transport::Peer;

/// Where the time of one request went. The phases follow each other, so their sum is the time from
/// the first byte of the request to the last byte of the response. It is for frameworks.
///
/// ```
/// use filoplume_runtime::{Exchange, Request, Response, Service};
///
/// struct Hello;
///
/// impl Service for Hello {
///     fn call(&self, _: Request) -> Response {
///         Response::from("Hello!")
///     }
///
///     fn measures(&self) -> bool {
///         true
///     }
///
///     fn completed(&self, exchange: &Exchange) {
///         let timing = exchange.timing;
///         println!(
///             "{:?}, of which {:?} waiting in the handler",
///             timing.total(),
///             timing.waiting
///         );
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// The head arrived in several pieces: the time from the first to the last one. Zero for a head
    /// that was read at once.
    pub head: Duration,
    /// The engine collected the content, and the connection had to wait for the rest of it. Zero if
    /// it arrived with the head. A content that the handler reads itself counts as
    /// [`waiting`](Self::waiting).
    pub content: Duration,
    /// The request was there, and its event loop was busy with others. This phase begins when the
    /// system reported the request to the event loop. If a request or those before it are long, its
    /// connection yields to others from time to time, and that is counted here too.
    pub turn: Duration,
    /// The request waited for a thread of the pool, or for a permit.
    pub queue: Duration,
    /// The handler used a processor.
    pub computing: Duration,
    /// The handler waited: for a database, a lock, a disk. For a handler on the pool this includes
    /// the time in which its thread was ready but had no processor.
    pub waiting: Duration,
    /// From the return of the handler until the system had taken the last byte of the response. For
    /// a response body that other threads push, this phase ends with the head.
    pub write: Duration,
}

impl Timing {
    /// The number of phases.
    pub const PHASES: usize = 7;

    /// Returns the sum of all phases.
    pub fn total(&self) -> Duration {
        let before_the_call = self.head + self.content + self.turn + self.queue;
        before_the_call + self.computing + self.waiting + self.write
    }

    /// Returns the phases with their names, in their order in time.
    ///
    /// ```
    /// let names = filoplume_runtime::Timing::default().phases().map(|(name, _)| name);
    /// assert_eq!(
    ///     names,
    ///     ["head", "content", "turn", "queue", "computing", "waiting", "write"]
    /// );
    /// ```
    pub fn phases(&self) -> [(&'static str, Duration); Self::PHASES] {
        [
            ("head", self.head),
            ("content", self.content),
            ("turn", self.turn),
            ("queue", self.queue),
            ("computing", self.computing),
            ("waiting", self.waiting),
            ("write", self.write),
        ]
    }
}

/// A request and its response, as far as the engine has measured them. It is for frameworks that
/// log or count requests.
///
/// See [`Service::measures`](crate::Service::measures) for which requests are measured.
///
/// ```
/// use filoplume_runtime::Exchange;
/// use std::time::Duration;
///
/// /// What a service may do with it.
/// fn warn_if_slow(exchange: &Exchange) {
///     let timing = exchange.timing;
///     if timing.total() > Duration::from_secs(1) {
///         eprintln!("{:?}: {} {timing:?}", exchange.route, exchange.status);
///     }
/// }
/// # let _ = warn_if_slow;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exchange {
    /// The number that the [plan](crate::Plan::route) gave to the route.
    pub route: Option<u32>,
    /// The status of the response.
    pub status: StatusCode,
    /// The sender of the request.
    pub peer: Peer,
    /// Where the time went. [`write`](Timing::write) is zero until the exchange is complete.
    pub timing: Timing,
    /// How many requests this one stands for: more than one if it was selected as a sample, one if
    /// it was measured for another reason.
    pub stands_for: u32,
    /// Whether its [plan](crate::Plan::timed) asked for the measurement.
    pub is_timed: bool,
    /// Where the handler ran. `None` if it was not called.
    pub ran: Option<Ran>,
    /// What it waited for in the queue of its route, if it did.
    pub queued_for: Option<QueuedFor>,
    /// Why the request was refused without a call of its handler.
    pub refusal: Option<Refusal>,
    /// Whether the connection failed before the response was written.
    pub is_broken: bool,
    /// What [`Service::answered`](crate::Service::answered) has kept for
    /// [`Service::completed`](crate::Service::completed).
    pub note: Option<Note>,
}

/// What a request lacked when it began to wait in the queue of its route.
///
/// ```
/// use filoplume_runtime::{Exchange, QueuedFor};
///
/// fn reason(exchange: &Exchange) -> Option<String> {
///     Some(match exchange.queued_for.as_ref()? {
///         QueuedFor::Thread { holder, held } => format!("route {holder:?} had {held} threads"),
///         QueuedFor::ClientShare => "its client had its share of the threads".to_owned(),
///         QueuedFor::Permit { permits, holders } => match holders.first() {
///             Some(most) => format!("route {:?} had {} permits", most.route, most.held),
///             None => format!("all of {} were taken", permits.name()),
///         },
///         _ => "unknown".to_owned(),
///     })
/// }
/// # let _ = reason;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QueuedFor {
    /// A thread of the pool.
    Thread {
        /// The route with the most threads, by the number of its [plan](crate::Plan::route). `None`
        /// if it has none.
        holder: Option<u32>,
        /// How many threads that route had.
        held: usize,
    },
    /// Processor time: its route computes, and so do as many threads as the processors can take.
    Processor,
    /// One more thread for its client, which had its share of them.
    ClientShare,
    /// A permit.
    Permit {
        /// The permits, all of which were taken, or as many as its client may have.
        permits: Permits,
        /// Who held the most permits, the largest number first.
        holders: Vec<PermitHolder>,
    },
}

/// A route that held [permits](Permits) when a request began to wait for one.
///
/// ```
/// use filoplume_runtime::PermitHolder;
///
/// fn line(holder: &PermitHolder) -> String {
///     let PermitHolder { route, held, oldest, .. } = holder;
///     format!("route {route:?} had {held} permits, the oldest for {oldest:?}")
/// }
/// # let _ = line;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitHolder {
    /// The route, by the number of its [plan](crate::Plan::route). `None` for a route without a
    /// number, for one of another server, and for handlers that have
    /// [taken](Permits::take) permits by themselves.
    pub route: Option<u32>,
    /// How many permits it held.
    pub held: usize,
    /// How long it had been holding the oldest of them.
    pub oldest: Duration,
}

/// Where a handler ran.
///
/// ```
/// use filoplume_runtime::{Exchange, Ran};
///
/// fn has_held_a_loop(exchange: &Exchange) -> bool {
///     exchange.ran == Some(Ran::Caught)
/// }
/// # let _ = has_held_a_loop;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran {
    /// On the event loop that has read the request.
    OnLoop,
    /// It began on the event loop and held it for so long that another thread took the loop over.
    Caught,
    /// On a thread of the pool.
    OnPool,
}

/// What a service keeps about an exchange between two of its calls.
pub type Note = std::sync::Arc<dyn std::any::Any + Send + Sync>;
