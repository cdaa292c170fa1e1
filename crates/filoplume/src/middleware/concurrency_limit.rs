//! At most so many requests at once.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, ResponseBody, StatusCode};
use parking_lot::{Condvar, Mutex};

use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::middleware::client_network::client_network;

/// Longest wait. Nobody waits longer for an answer, and the clock can express it.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Lets at most so many requests in at once; more are a `503` with `Retry-After`.
///
/// It counts what goes through the place where it stands: all requests of an app, those of a
/// router, or those of a route. For what is scarce behind a handler: a pool of database
/// connections, memory, a service that must not be flooded.
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
/// A request counts until it is answered, by a panic too; a response that is a stream until the
/// stream is sent or given up. What takes the connection over after a `101` counts no more.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    gate: Arc<Gate>,
    client_max: Option<usize>,
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
        Self { gate, client_max: None, wait: None, retry_after: Duration::from_secs(1) }
    }

    /// Lets at most so many requests of one client in at once, those that wait included; more are a
    /// `429`. A client is an IPv4 address or 64 bits of an IPv6 one, behind the
    /// [proxies](crate::App::trust_proxies) that the app trusts. Default: no client has a limit of
    /// its own.
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

    /// Lets up to `waiting_max` more requests wait for up to `timeout` before they are refused.
    /// Each of them holds a thread meanwhile. Who came first is not always let in first. Default:
    /// nobody waits.
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

    /// Sets what refused clients are told in `Retry-After`, in whole seconds. Default: 1 s.
    #[must_use]
    pub fn retry_after(mut self, duration: Duration) -> Self {
        self.retry_after = duration;
        self
    }
}

impl Middleware for ConcurrencyLimit {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let client = self.client_max.and_then(|running_max| {
            let network = client_network(&request, next.context())?;
            Some(Client { network, running_max })
        });
        let permit = Gate::enter(&self.gate, client, self.wait).map_err(|full| {
            let seconds = whole_seconds(self.retry_after);
            full.into_error().with_known_header("retry-after", seconds.to_string())
        })?;
        let mut response = next.run(request);
        hold_while_sent(response.body_mut(), permit);
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        if self.gate.running_max == 0 || self.client_max == Some(0) {
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
        ResponseBody::Unsized(reader) => {
            ResponseBody::Unsized(Box::new(Held { reader, _permit: permit }))
        }
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
    /// Those of each client who run or wait. Only clients that do are in it, so that it is as
    /// bounded as these.
    clients: HashMap<IpAddr, usize>,
}

/// A client with a limit of its own.
#[derive(Clone, Copy, Debug)]
struct Client {
    network: IpAddr,
    running_max: usize,
}

/// Why nobody more is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    OfAll,
    OfOneClient,
}

impl Full {
    fn into_error(self) -> Error {
        match self {
            Self::OfAll => Error::unavailable("too many requests are being answered at the moment"),
            Self::OfOneClient => Error::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many of your requests are being answered at the moment",
            ),
        }
    }
}

impl Counts {
    fn add(&mut self, client: Client) -> Result<(), Full> {
        let running = self.clients.entry(client.network).or_default();
        if *running >= client.running_max {
            return Err(Full::OfOneClient);
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

impl Gate {
    /// Lets one in, unless it is full and stays so while it is waited.
    fn enter(gate: &Arc<Self>, client: Option<Client>, wait: Option<Wait>) -> Result<Permit, Full> {
        let mut counts = gate.counts.lock();
        if let Some(client) = client {
            counts.add(client)?;
        }
        let client = client.map(|client| client.network);
        if counts.running >= gate.running_max {
            if let Some(wait) = wait.filter(|wait| counts.waiting < wait.waiting_max) {
                let deadline = Instant::now() + wait.timeout.min(WAIT_MAX);
                counts.waiting += 1;
                while counts.running >= gate.running_max {
                    if gate.left.wait_until(&mut counts, deadline).timed_out() {
                        break;
                    }
                }
                counts.waiting -= 1;
            }
            if counts.running >= gate.running_max {
                counts.remove(client);
                return Err(Full::OfAll);
            }
        }
        counts.running += 1;
        Ok(Permit { gate: Arc::clone(gate), client })
    }
}

/// The right to be inside, given back when it is dropped.
struct Permit {
    gate: Arc<Gate>,
    client: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock();
        counts.running -= 1;
        counts.remove(self.client);
        let is_waited_for = counts.waiting > 0;
        drop(counts);
        if is_waited_for {
            self.gate.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn gate(running_max: usize) -> Arc<Gate> {
        Arc::clone(&ConcurrencyLimit::new(running_max).gate)
    }

    #[test]
    fn as_many_as_allowed_are_inside_and_one_may_follow_who_leaves() {
        let gate = gate(2);
        let first = Gate::enter(&gate, None, None).ok().unwrap();
        let _second = Gate::enter(&gate, None, None).ok().unwrap();
        assert!(Gate::enter(&gate, None, None).is_err());
        drop(first);
        assert!(Gate::enter(&gate, None, None).is_ok());
    }

    #[test]
    fn one_client_leaves_room_for_the_others_and_is_forgotten_when_it_leaves() {
        let gate = gate(3);
        let client =
            |last| Some(Client { network: IpAddr::from([192, 0, 2, last]), running_max: 2 });
        let first = Gate::enter(&gate, client(1), None).ok().unwrap();
        let second = Gate::enter(&gate, client(1), None).ok().unwrap();
        assert_eq!(Gate::enter(&gate, client(1), None).err(), Some(Full::OfOneClient));
        let other = Gate::enter(&gate, client(2), None).ok().unwrap();
        assert_eq!(
            Gate::enter(&gate, client(2), None).err(),
            Some(Full::OfAll),
            "which is not counted for it"
        );
        drop((first, second));
        assert!(Gate::enter(&gate, client(2), None).is_ok());
        drop(other);
        let counts = gate.counts.lock();
        assert_eq!((counts.running, counts.clients.len()), (0, 0));
    }

    #[test]
    fn who_waits_is_let_in_when_somebody_leaves() {
        let gate = gate(1);
        // Longer than the test waits: who is not woken is not let in by the end of the time.
        let wait = Some(Wait { timeout: Duration::from_secs(3600), waiting_max: 1 });
        let permit = Gate::enter(&gate, None, None).ok().unwrap();
        let (tell, is_let_in) = mpsc::channel();
        thread::spawn({
            let gate = Arc::clone(&gate);
            move || tell.send(Gate::enter(&gate, None, wait).is_ok())
        });
        while gate.counts.lock().waiting == 0 {
            thread::yield_now();
        }
        assert!(Gate::enter(&gate, None, wait).is_err(), "only one may wait");
        drop(permit);
        assert_eq!(is_let_in.recv_timeout(Duration::from_secs(30)), Ok(true));
        let counts = gate.counts.lock();
        assert_eq!((counts.running, counts.waiting), (0, 0));
    }

    #[test]
    fn who_waits_in_vain_is_refused_and_forgotten() {
        let gate = gate(1);
        let _permit = Gate::enter(&gate, None, None).ok().unwrap();
        let wait = Some(Wait { timeout: Duration::from_millis(1), waiting_max: 1 });
        assert!(Gate::enter(&gate, None, wait).is_err());
        assert_eq!(gate.counts.lock().waiting, 0);
    }

    #[test]
    fn a_body_that_is_read_holds_the_permit_until_it_is_dropped() {
        let gate = gate(1);
        let permit = Gate::enter(&gate, None, None).ok().unwrap();
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
