//! Good clients: each asks for one thing again and again, and remembers how long it took and what
//! failed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::latency::Latencies;

/// The time between two requests: they are clients, not a load.
const PAUSE: Duration = Duration::from_millis(3);

/// Who waits for longer has gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the clients ask for, each for one of these.
const ASKED: [Asked; 4] = [Asked::Plain, Asked::Newcomer, Asked::Blocking, Asked::Json];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A quick page over a connection that is kept.
    Plain,
    /// The same, each time over a new connection.
    Newcomer,
    /// A page whose handler waits for 50 ms.
    Blocking,
    /// A small content, which comes back.
    Json,
}

/// Clients on threads of their own.
#[derive(Debug)]
pub struct Good {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Latencies, Vec<String>)>>,
}

/// What they saw.
#[derive(Debug)]
pub struct Answers {
    latencies: Vec<(Asked, Latencies)>,
    failures: Vec<String>,
}

impl Good {
    /// Begins to ask.
    pub fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |asked: Asked| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || asked.again_and_again(address, &is_over))
        };
        Self { threads: ASKED.map(start).into_iter().collect(), is_over }
    }

    /// Asks for so long.
    #[track_caller]
    pub fn ask_for(self, time: Duration) -> Answers {
        thread::sleep(time);
        self.stop()
    }

    /// Stops, and returns what they saw.
    #[track_caller]
    pub fn stop(mut self) -> Answers {
        self.is_over.store(true, Ordering::Relaxed);
        let mut answers = Answers { latencies: Vec::new(), failures: Vec::new() };
        for (asked, thread) in ASKED.into_iter().zip(self.threads.drain(..)) {
            let (latencies, failures) = thread.join().expect("a good client does not panic");
            answers.latencies.push((asked, latencies));
            answers.failures.extend(failures);
        }
        answers
    }
}

/// A test that fails leaves no client behind that goes on for ever.
impl Drop for Good {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Asked {
    fn again_and_again(
        self,
        address: SocketAddr,
        is_over: &AtomicBool,
    ) -> (Latencies, Vec<String>) {
        let (mut latencies, mut failures) = (Latencies::default(), Vec::new());
        let (mut client, first) = (None, Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            let started = Instant::now();
            match self.ask(address, &mut client) {
                Ok(()) => latencies.add(started.elapsed()),
                Err(failure) => {
                    client = None;
                    let (at, took) = (started - first, started.elapsed());
                    failures
                        .push(format!("{self:?} failed at {at:.1?} after {took:.1?}: {failure}"));
                }
            }
            thread::sleep(PAUSE);
        }
        (latencies, failures)
    }

    fn ask(self, address: SocketAddr, kept: &mut Option<Client>) -> Result<(), String> {
        let mut client = match kept.take() {
            Some(client) => client,
            None => {
                Client::try_connect(address).map_err(|error| error.to_string())?.patience(PATIENCE)
            }
        };
        let (request, expected) = match self {
            Self::Plain => ("GET / HTTP/1.1\r\nHost: t\r\n\r\n", "plain"),
            Self::Newcomer => ("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", "plain"),
            Self::Blocking => ("GET /blocking HTTP/1.1\r\nHost: t\r\n\r\n", "blocked"),
            Self::Json => (
                "POST /json HTTP/1.1\r\nHost: t\r\nContent-Type: \
                 application/json\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}",
                "{\"a\":[1]}",
            ),
        };
        client.try_send(request).map_err(|error| error.to_string())?;
        let response = client.try_response().map_err(|ended| ended.to_string())?;
        if response.status != 200 || response.body != expected.as_bytes() {
            return Err(format!("{response:?}"));
        }
        if self != Self::Newcomer {
            *kept = Some(client);
        }
        Ok(())
    }
}

impl Answers {
    /// Whether nothing failed, quick answers took no longer than `p99_max` in 99 of 100 cases, over
    /// new connections no longer than `newcomers_max`, and none took longer than `longest`.
    pub(super) fn check(
        &self,
        p99_max: Duration,
        newcomers_max: Duration,
        longest: Duration,
    ) -> Result<(), String> {
        if let Some(failure) = self.failures.first() {
            return Err(format!("{} answers failed: {failure}", self.failures.len()));
        }
        for (asked, latencies) in &self.latencies {
            if latencies.count() == 0 {
                return Err(format!("{asked:?} had no answer"));
            }
            let p99_max = match asked {
                Asked::Plain | Asked::Json => p99_max,
                Asked::Newcomer => newcomers_max,
                // It takes some time by itself, so there are too few of them for more than the
                // longest.
                Asked::Blocking => longest,
            };
            if latencies.longest() > longest || latencies.p99() > p99_max {
                return Err(format!("{asked:?} took too long"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (asked, latencies) in &self.latencies {
            if latencies.count() == 0 {
                write!(f, "{asked:?} never; ")?;
                continue;
            }
            let (p99, longest) = (latencies.p99(), latencies.longest());
            write!(f, "{asked:?} {} p99 {p99:.1?} max {longest:.1?}; ", latencies.count())?;
        }
        write!(f, "{} failed", self.failures.len())?;
        self.failures.iter().take(3).try_for_each(|failure| write!(f, "\n        {failure}"))
    }
}
