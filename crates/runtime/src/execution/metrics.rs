//! The public metrics of a route.

use std::time::{Duration, Instant};

/// The measurements of one route, where its calls run, and why.
///
/// [`Metrics::routes`](crate::Metrics::routes) returns one for each route that was called. The
/// engine measures one call in sixteen, so the times are estimates.
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
    /// The name from [`Service::route_name`](crate::Service::route_name), or the route's number, or
    /// the path of its first request.
    pub name: String,
    /// The number from its [plan](crate::Plan::route), if it has one. If there are more than a
    /// thousand routes, numbers far apart may share the measurements: this is the first of them.
    pub number: Option<u32>,
    /// Calls that have ended since the start. Running calls are not included, and up to fifteen
    /// recent calls per event loop and thread may be missing.
    pub calls: u64,
    /// The time in which its calls computed, summed over all threads.
    pub computing: Duration,
    /// The time in which its calls waited while they ran: for a database, a lock or a disk. For
    /// calls on the pool it includes the time in which their threads were ready but had no
    /// processor. The time before a call begins is not included:
    /// [`Metrics::waiting`](crate::Metrics::waiting) counts the requests that wait for a thread.
    pub waiting: Duration,
    /// Where its next call runs.
    pub runs: Runs,
    /// Since when it runs there. `None` if it never ran elsewhere.
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
    /// On a thread of the pool, or on the event loop while it is idle.
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
    /// It was never seen to hold an event loop for long.
    #[default]
    NotSeenToWait,
    /// Its calls waited on the event loops, and the delay of other requests cost more than
    /// dispatches would have. The last call waited for this long.
    Waited(Duration),
    /// Its calls computed on the event loops for too long. The last call took this long.
    Computed(Duration),
    /// A call did not return, and the watchdog took the event loop from it, or found no thread to
    /// lead the loop.
    Caught,
    /// It ran on the pool, and enough calls in a row were quick.
    Quick,
}
