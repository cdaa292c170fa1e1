//! A limit on concurrent requests.

mod sending;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, ResponseBody, StatusCode, client_network};
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::sending::{PlaceReader, SendingPlace};
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;

/// Longest wait. No client waits longer for a response, and the clock can express it.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// How long a refused request counts as one that waits: its client was asked to come again.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// How often a request that waits looks for places of clients that have become too slow.
const LATE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Limits the number of requests that run at once. Further ones get a `503` with `Retry-After`.
///
/// It counts the requests that pass it: all requests of an app, those of a router, or those of a
/// route. Use it for a scarce resource behind a handler: a pool of database connections, memory, or
/// a service that must not be flooded.
///
/// ```
/// use filoplume::middleware::ConcurrencyLimit;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .route("/thumbnail", get(|| "a small picture").with(ConcurrencyLimit::new(4)));
/// app.test().get("/thumbnail").send().assert_status(200);
/// ```
///
/// A request counts until its handler has returned or panicked. If the response is read from a
/// reader of the program, such as [`Reader`](crate::response::Reader), it counts until that is sent
/// or dropped. A file does not count while it is sent, and neither does a connection that is
/// upgraded after a `101`.
///
/// Slow clients do not block places that others need. While requests wait for a place, or have been
/// refused in the last ten seconds:
///
/// - A content that the handler reads as it arrives must arrive with 64 KiB per second, and with no
///   pause of more than a second. Otherwise reading it fails with `TimedOut`, which is a `408`.
/// - A client must take a response from a reader with 64 KiB per second, and with no pause of more
///   than five seconds. Otherwise its place goes to another request, and the response is cut short
///   when its next part is wanted.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    limiter: Arc<Limiter>,
    client_max: Option<usize>,
    wait: Option<Wait>,
    retry_after: Duration,
}

/// How long a request may wait, and how many may wait at once.
#[derive(Clone, Copy, Debug)]
struct Wait {
    timeout: Duration,
    waiting_max: usize,
}

impl ConcurrencyLimit {
    /// Returns a limit of `running_max` requests. An app with a limit of 0 does not start.
    pub fn new(running_max: usize) -> Self {
        let limiter =
            Arc::new(Limiter { running_max, counts: Mutex::default(), released: Condvar::new() });
        Self { limiter, client_max: None, wait: None, retry_after: Duration::from_secs(1) }
    }

    /// Limits the requests of one client that run or wait at once. Further ones get a `429`. A
    /// client is an IPv4 address or 64 bits of an IPv6 one, behind the
    /// [proxies](crate::App::trust_proxies) that the app trusts. Default: no limit per client.
    ///
    /// ```
    /// use filoplume::middleware::ConcurrencyLimit;
    /// use filoplume::prelude::*;
    ///
    /// let limit = ConcurrencyLimit::new(200).per_client(10);
    /// let app = App::new().get("/search", || "found").with(limit);
    /// app.test().get("/search").send().assert_status(200);
    /// ```
    #[must_use]
    pub fn per_client(mut self, running_max: usize) -> Self {
        self.client_max = Some(running_max);
        self
    }

    /// Lets up to `waiting_max` further requests wait for up to `timeout` before they are refused.
    /// Each of them holds a thread while it waits. A new request does not overtake those that wait.
    /// Default: no request waits.
    ///
    /// ```
    /// use filoplume::middleware::ConcurrencyLimit;
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
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

    /// Sets the `Retry-After` of refused requests, in whole seconds. Default: 1 s.
    #[must_use]
    pub fn retry_after(mut self, duration: Duration) -> Self {
        self.retry_after = duration;
        self
    }
}

impl Middleware for ConcurrencyLimit {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let client = self.client_max.and_then(|running_max| {
            let network = next.context().client_ip(&request).map(client_network)?;
            Some(ClientLimit { network, running_max })
        });
        let permit = Limiter::acquire(&self.limiter, client, self.wait).map_err(|full| {
            if matches!(full, LimitReached::PerClient { .. }) {
                next.context().settings.proxies.warn_of_untrusted(&request);
            }
            let seconds = whole_seconds(self.retry_after);
            full.into_error().with_known_header("retry-after", seconds.to_string())
        })?;
        let held = Arc::downgrade(&permit);
        request.press_content_when(move || {
            held.upgrade().is_some_and(|permit| permit.limiter.is_waited_for())
        });
        let mut response = next.run(request);
        hold_permit_while_sent(response.body_mut(), permit);
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        if self.limiter.running_max == 0 || self.client_max == Some(0) {
            options.mistake("ConcurrencyLimit: a limit of 0 would refuse every request");
        }
    }
}

/// Rounds up, to at least 1: a client that is told 0 would try again at once.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).max(1)
}

/// Keeps the permit while a body is read from a reader of the program. Otherwise the permit is
/// released here: bytes are there already, and the system sends files.
fn hold_permit_while_sent(body: &mut ResponseBody, permit: Arc<Permit>) {
    let held = move |reader| {
        let limiter = Arc::clone(&permit.limiter);
        let place = Arc::new(SendingPlace::new(permit, Instant::now()));
        limiter.add_sending(&place);
        Box::new(PlaceReader { reader, place })
    };
    *body = match std::mem::take(body) {
        ResponseBody::Sized { reader, length } => {
            ResponseBody::Sized { reader: held(reader), length }
        }
        ResponseBody::Unsized(reader) => ResponseBody::Unsized(held(reader)),
        whole => whole,
    };
}

/// Counts the requests that run or wait.
#[derive(Debug)]
struct Limiter {
    running_max: usize,
    /// No permit and no [`SendingPlace`] is dropped while this is locked, because dropping one
    /// locks it.
    counts: Mutex<Counts>,
    /// Notified when a permit is released while requests are waiting.
    released: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    running: usize,
    waiting: usize,
    /// When a request was last refused because all places were taken.
    refused_at: Option<Instant>,
    /// The places of responses that are being sent. Each counts as one of `running`, unless it was
    /// dropped or given to another request.
    sending: Vec<Weak<SendingPlace>>,
    /// Running and waiting requests per client. Clients without requests are removed, so the map is
    /// bounded by the number of requests.
    clients: HashMap<IpAddr, usize>,
}

/// A client and its limit.
#[derive(Clone, Copy, Debug)]
struct ClientLimit {
    network: IpAddr,
    running_max: usize,
}

/// Which limit refused the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitReached {
    /// `running` places are taken, `sending` of them by responses that are being sent, and
    /// `waiting` requests wait.
    Total { running: usize, sending: usize, waiting: usize },
    /// The client has its maximum.
    PerClient { running_max: usize },
}

impl LimitReached {
    /// The source of the error is for the log and for developers.
    fn into_error(self) -> Error {
        let error = match self {
            Self::Total { .. } => {
                Error::unavailable("too many requests are being answered at the moment")
            }
            Self::PerClient { .. } => Error::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many of your requests are being answered at the moment",
            ),
        };
        error.with_source(self.to_string())
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total { running, sending, waiting } => write!(
                f,
                "ConcurrencyLimit: {running} requests are being answered, its maximum; the \
                 responses of {sending} of them are being sent, and {waiting} more requests wait"
            ),
            Self::PerClient { running_max } => {
                write!(
                    f,
                    "ConcurrencyLimit: {running_max} requests of the client are being answered, \
                     its maximum"
                )
            }
        }
    }
}

impl Counts {
    fn add(&mut self, client: ClientLimit) -> Result<(), LimitReached> {
        let running = self.clients.entry(client.network).or_default();
        if *running >= client.running_max {
            return Err(LimitReached::PerClient { running_max: client.running_max });
        }
        *running += 1;
        Ok(())
    }

    fn remove(&mut self, client: Option<IpAddr>) {
        let Some(network) = client else { return };
        if let Some(running) = self.clients.get_mut(&network) {
            *running -= 1;
            if *running == 0 {
                self.clients.remove(&network);
            }
        }
    }
}

impl Limiter {
    /// Acquires a permit, waiting for one if `wait` allows it.
    fn acquire(
        limiter: &Arc<Self>,
        client: Option<ClientLimit>,
        wait: Option<Wait>,
    ) -> Result<Arc<Permit>, LimitReached> {
        let mut counts = limiter.counts.lock();
        if let Some(client) = client {
            counts.add(client)?;
        }
        let client = client.map(|client| client.network);
        if counts.running >= limiter.running_max {
            limiter.take_late_place(&mut counts);
        }
        // A place that was released belongs to the requests that wait, not to a new one.
        let mut has_place = counts.running < limiter.running_max && counts.waiting == 0;
        if !has_place {
            if let Some(wait) = wait.filter(|wait| counts.waiting < wait.waiting_max) {
                let deadline = Instant::now() + wait.timeout.min(WAIT_MAX);
                counts.waiting += 1;
                limiter.wait_until(&mut counts, deadline);
                counts.waiting -= 1;
                has_place = counts.running < limiter.running_max;
            }
        }
        if !has_place {
            counts.refused_at = Some(Instant::now());
            counts.remove(client);
            let Counts { running, waiting, ref sending, .. } = *counts;
            let sending = sending.iter().filter(|place| place.strong_count() > 0).count();
            return Err(LimitReached::Total { running, sending, waiting });
        }
        counts.running += 1;
        // Two places may have been released before the first of two waiting requests was awake, so
        // it wakes the next one.
        let has_more = counts.waiting > 0 && counts.running < limiter.running_max;
        drop(counts);
        if has_more {
            limiter.released.notify_one();
        }
        Ok(Arc::new(Permit { limiter: Arc::clone(limiter), client }))
    }

    /// Waits at least once, behind those that wait already.
    fn wait_until(&self, counts: &mut MutexGuard<'_, Counts>, deadline: Instant) {
        loop {
            let now = Instant::now();
            let is_sending = !counts.sending.is_empty();
            let until = if is_sending { deadline.min(now + LATE_CHECK_INTERVAL) } else { deadline };
            self.released.wait_until(counts, until);
            if counts.running >= self.running_max {
                self.take_late_place(counts);
            }
            if counts.running < self.running_max || now >= deadline {
                return;
            }
        }
    }

    /// Takes the place of a client that takes its response too slowly, if there is one.
    fn take_late_place(&self, counts: &mut MutexGuard<'_, Counts>) {
        if counts.sending.is_empty() {
            return;
        }
        let now = Instant::now();
        let places: Vec<_> = counts.sending.iter().filter_map(Weak::upgrade).collect();
        // A reader may have ended meanwhile, so each of these can be the last owner of its permit,
        // and dropping a permit takes the lock.
        MutexGuard::unlocked(counts, move || {
            let late = places.iter().find_map(|place| place.take_if_late(now));
            drop((late, places));
        });
    }

    /// Registers a response that is being sent.
    fn add_sending(&self, place: &Arc<SendingPlace>) {
        let mut counts = self.counts.lock();
        // There are at most as many as there are places, so this is short.
        counts.sending.retain(|other| other.strong_count() > 0);
        counts.sending.push(Arc::downgrade(place));
    }

    /// Returns whether others wait for a place, or were refused a moment ago.
    fn is_waited_for(&self) -> bool {
        let counts = self.counts.lock();
        counts.waiting > 0 || counts.refused_at.is_some_and(|at| at.elapsed() < REFUSED_FOR)
    }
}

/// The right to run, released on drop.
struct Permit {
    limiter: Arc<Limiter>,
    client: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limiter.counts.lock();
        counts.running -= 1;
        counts.remove(self.client);
        let is_waited_for = counts.waiting > 0;
        drop(counts);
        if is_waited_for {
            self.limiter.released.notify_one();
        }
    }
}
