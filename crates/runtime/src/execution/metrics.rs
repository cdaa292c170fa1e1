//! What the engine has learned of a route, as it is shown.

use std::time::{Duration, Instant};

/// What was measured of one route, where its calls run, and why.
///
/// [`Metrics::routes`](crate::Metrics::routes) returns one for each route that was called. The
/// engine measures a call in sixteen, so the times are estimates.
///
/// ```
/// use filoplume_runtime::{Request, Server};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// for route in server.metrics().expect("it serves").routes() {
///     println!(
///         "{}: {} calls, {:?} waiting, {:?}",
///         route.name, route.calls, route.waiting, route.runs
///     );
/// }
/// # server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteMetrics {
    /// What the service calls the route ([`Service::route_name`](crate::Service::route_name)), or
    /// its number, or the path of its first request.
    pub name: String,
    /// Calls that have ended since the start. A call that is going on, and up to fifteen per event
    /// loop and thread that nobody has looked at yet, are not in it.
    pub calls: u64,
    /// The time in which its calls computed, of all threads together.
    pub computing: Duration,
    /// The time in which its calls waited: for a database, a lock, a disk. Of calls on the pool the
    /// time is in it in which their threads stood in line for a processor.
    pub waiting: Duration,
    /// Where its next call runs.
    pub runs: Runs,
    /// Since when it runs there; `None` if it never ran elsewhere.
    pub since: Option<Instant>,
    /// Why it runs there.
    pub why: Why,
}

/// Where the calls of a route run.
///
/// ```
/// use filoplume_runtime::{Request, Runs, Server};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// let metrics = server.metrics().expect("it serves");
/// let on_pool =
///     metrics.routes().iter().filter(|route| route.runs == Runs::OnPool).count();
/// assert_eq!(on_pool, 0);
/// # server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Runs {
    /// On the event loop that has read the request.
    OnLoop,
    /// On a thread of the pool; on the loop while nobody else wants that.
    OnPool,
}

/// Why the calls of a route run where they do.
///
/// ```
/// use filoplume_runtime::{Request, Server, Why};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn(|_: Request| "Hello!")?;
/// for route in server.metrics().expect("it serves").routes() {
///     match route.why {
///         Why::Waited(time) => {
///             println!("{} waits, for {time:?} when it was found", route.name)
///         }
///         Why::Caught => println!("{} did not return in time", route.name),
///         _ => {}
///     }
/// }
/// # server.shutdown_handle().shutdown();
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It was not seen to hold an event loop for long.
    #[default]
    NotSeenToWait,
    /// Its calls waited on the event loops, and that cost others more than dispatches would have.
    /// The last one waited for this long.
    Waited(Duration),
    /// Its calls computed on the event loops for longer than others should stand behind them. The
    /// last one took this long.
    Computed(Duration),
    /// A call did not return, and the watchdog took the event loop from it.
    Caught,
    /// It ran on the pool, and enough calls in a row were quick.
    Quick,
}
