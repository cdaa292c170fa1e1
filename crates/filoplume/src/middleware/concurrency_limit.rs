//! At most so many requests at once.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, ResponseBody};
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::middleware::{Middleware, Next};
use crate::routing::RouteOptions;

/// Longest wait. Nobody waits longer for an answer, and the clock can express it.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Lets at most so many requests in at once; more are a `503` with `Retry-After`.
///
/// It counts what goes through the place where it stands: all requests of an app, those of a router, or those of a route.
/// For what is scarce behind a handler: a pool of database connections, memory, a service that must not be flooded.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::middleware::ConcurrencyLimit;
///
/// let app = App::new()
///     .route("/thumbnail", get(|| "a small picture").with(ConcurrencyLimit::new(4)));
/// app.test().get("/thumbnail").send().assert_status(200);
/// ```
///
/// A request counts until it is answered, by a panic too; a response that is a stream until the stream is sent or
/// given up. What takes the connection over after a `101` counts no more.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    gate: Arc<Gate>,
    wait: Option<Wait>,
    retry_after: Duration,
}

/// How long a request waits to be let in, and how many do.
#[derive(Clone, Copy, Debug)]
struct Wait {
    timeout: Duration,
    waiting_max: usize,
}

impl ConcurrencyLimit {
    /// Returns a limit of `running_max` requests. An app with a limit of 0 does not start.
    pub fn new(running_max: usize) -> Self {
        let gate = Arc::new(Gate { running_max, counts: Mutex::default(), left: Condvar::new() });
        Self { gate, wait: None, retry_after: Duration::from_secs(1) }
    }

    /// Lets up to `waiting_max` more requests wait for up to `timeout` before they are refused. Each of them holds a
    /// thread meanwhile. Who came first is not always let in first. Default: nobody waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use filoplume::middleware::ConcurrencyLimit;
    /// use filoplume::prelude::*;
    ///
    /// let limit = ConcurrencyLimit::new(4).wait(Duration::from_millis(500), 20);
    /// let app = App::new().route("/thumbnail", get(|| "a small picture").with(limit));
    /// app.test().get("/thumbnail").send().assert_status(200);
    /// ```
    #[must_use]
    pub fn wait(mut self, timeout: Duration, waiting_max: usize) -> Self {
        self.wait = Some(Wait { timeout, waiting_max });
        self
    }

    /// Sets what refused clients are told in `Retry-After`, in whole seconds. Default: 1 s.
    #[must_use]
    pub fn retry_after(mut self, duration: Duration) -> Self {
        self.retry_after = duration;
        self
    }
}

impl Middleware for ConcurrencyLimit {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let Some(permit) = Gate::enter(&self.gate, self.wait) else {
            let seconds = whole_seconds(self.retry_after);
            return Err(Error::unavailable("too many requests are being answered at the moment")
                .with_known_header("retry-after", seconds.to_string()));
        };
        let mut response = next.run(request);
        hold_while_sent(response.body_mut(), permit);
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        if self.gate.running_max == 0 {
            options.mistake("ConcurrencyLimit: a limit of 0 would refuse every request");
        }
    }
}

/// Rounded up, and at least one: a client that is told 0 would ask again at once.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).max(1)
}

/// Keeps the permit with a body that is still to be read; otherwise it is given back here.
fn hold_while_sent(body: &mut ResponseBody, permit: Permit) {
    *body = match std::mem::take(body) {
        ResponseBody::Sized { reader, length } => {
            ResponseBody::Sized { reader: Box::new(Held { reader, _permit: permit }), length }
        }
        ResponseBody::Unsized(reader) => ResponseBody::Unsized(Box::new(Held { reader, _permit: permit })),
        whole => whole,
    };
}

/// A reader that keeps a permit as long as it is there.
struct Held {
    reader: Box<dyn Read + Send>,
    _permit: Permit,
}

impl Read for Held {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// Counts those inside.
#[derive(Debug)]
struct Gate {
    running_max: usize,
    counts: Mutex<Counts>,
    /// Somebody left while others were waiting.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    running: usize,
    waiting: usize,
}

impl Gate {
    /// Lets one in, or `None`: it is full, and stayed so while it was waited.
    fn enter(gate: &Arc<Self>, wait: Option<Wait>) -> Option<Permit> {
        let mut counts = gate.counts.lock();
        if counts.running >= gate.running_max {
            let wait = wait.filter(|wait| counts.waiting < wait.waiting_max)?;
            let deadline = Instant::now() + wait.timeout.min(WAIT_MAX);
            counts.waiting += 1;
            while counts.running >= gate.running_max {
                if gate.left.wait_until(&mut counts, deadline).timed_out() {
                    break;
                }
            }
            counts.waiting -= 1;
            if counts.running >= gate.running_max {
                return None;
            }
        }
        counts.running += 1;
        Some(Permit { gate: Arc::clone(gate) })
    }
}

/// The right to be inside, given back when it is dropped.
struct Permit {
    gate: Arc<Gate>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock();
        counts.running -= 1;
        let is_waited_for = counts.waiting > 0;
        drop(counts);
        if is_waited_for {
            self.gate.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn gate(running_max: usize) -> Arc<Gate> {
        Arc::clone(&ConcurrencyLimit::new(running_max).gate)
    }

    #[test]
    fn as_many_as_allowed_are_inside_and_one_may_follow_who_leaves() {
        let gate = gate(2);
        let first = Gate::enter(&gate, None).unwrap();
        let _second = Gate::enter(&gate, None).unwrap();
        assert!(Gate::enter(&gate, None).is_none());
        drop(first);
        assert!(Gate::enter(&gate, None).is_some());
    }

    #[test]
    fn who_waits_is_let_in_when_somebody_leaves() {
        let gate = gate(1);
        let wait = Some(Wait { timeout: Duration::from_secs(60), waiting_max: 1 });
        let permit = Gate::enter(&gate, None).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| Gate::enter(&gate, wait).is_some());
            while gate.counts.lock().waiting == 0 {
                thread::yield_now();
            }
            assert!(Gate::enter(&gate, wait).is_none(), "only one may wait");
            drop(permit);
            assert!(waiting.join().unwrap());
        });
        let counts = gate.counts.lock();
        assert_eq!((counts.running, counts.waiting), (0, 0));
    }

    #[test]
    fn who_waits_in_vain_is_refused_and_forgotten() {
        let gate = gate(1);
        let _permit = Gate::enter(&gate, None).unwrap();
        let wait = Some(Wait { timeout: Duration::from_millis(1), waiting_max: 1 });
        assert!(Gate::enter(&gate, wait).is_none());
        assert_eq!(gate.counts.lock().waiting, 0);
    }

    #[test]
    fn a_body_that_is_read_holds_the_permit_until_it_is_dropped() {
        let gate = gate(1);
        let permit = Gate::enter(&gate, None).unwrap();
        let mut body = ResponseBody::Unsized(Box::new(io::Cursor::new("text")));
        hold_while_sent(&mut body, permit);
        assert_eq!(gate.counts.lock().running, 1);
        let ResponseBody::Unsized(mut reader) = body else { panic!("it is a reader still") };
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "text");
        assert_eq!(gate.counts.lock().running, 1);
        drop(reader);
        assert_eq!(gate.counts.lock().running, 0);
    }

    #[test]
    fn a_client_is_never_told_to_come_back_at_once() {
        for (duration, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(duration)), seconds);
        }
    }
}
