//! Good clients. Each sends one kind of request repeatedly, and records latencies and failures.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::{Client, Latencies};

use super::Defect;
use crate::noise::Noise;

/// The pause between two requests, so that these clients cause little load.
const PAUSE: Duration = Duration::from_millis(3);

/// How long a client waits before it gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The kinds of requests, one per client.
const ASKED: [Asked; 4] = [Asked::Plain, Asked::Newcomer, Asked::Blocking, Asked::Json];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A quick page over a kept connection.
    Plain,
    /// A quick page, each time over a new connection.
    Newcomer,
    /// A page whose handler blocks for 50 ms.
    Blocking,
    /// A small content, which is returned.
    Json,
}

/// Clients on their own threads.
#[derive(Debug)]
pub struct Good {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Latencies, Vec<String>)>>,
    noise: Option<Noise>,
}

/// The results of the clients.
#[derive(Debug)]
pub struct Answers {
    latencies: Vec<(Asked, Latencies)>,
    failures: Vec<String>,
    noise: Duration,
}

impl Good {
    /// Starts the clients, and waits until each of them has had its first response. Otherwise an
    /// attack could begin before they are connected, and all of them would be newcomers.
    pub fn start(address: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (asked_once, first_responses) = mpsc::channel();
        let start = |asked: Asked| {
            let (is_over, asked_once) = (Arc::clone(&is_over), asked_once.clone());
            thread::spawn(move || asked.again_and_again(address, &is_over, &asked_once))
        };
        let threads: Vec<_> = ASKED.map(start).into_iter().collect();
        drop(asked_once);
        first_responses.iter().take(threads.len()).for_each(drop);
        Self { is_over, threads, noise: Some(Noise::start()) }
    }

    /// Sends requests for `time`.
    #[track_caller]
    pub fn ask_for(self, time: Duration) -> Answers {
        thread::sleep(time);
        self.stop()
    }

    /// Stops the clients, and returns their results.
    #[track_caller]
    pub fn stop(mut self) -> Answers {
        self.is_over.store(true, Ordering::Relaxed);
        let noise = self.noise.take().map_or(Duration::ZERO, Noise::stop);
        let mut answers = Answers { latencies: Vec::new(), failures: Vec::new(), noise };
        for (asked, thread) in ASKED.into_iter().zip(self.threads.drain(..)) {
            let (latencies, failures) = thread.join().expect("a good client does not panic");
            answers.latencies.push((asked, latencies));
            answers.failures.extend(failures);
        }
        answers
    }
}

/// A failed test must not leave running clients behind.
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
        asked_once: &mpsc::Sender<()>,
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
            // Nobody listens after the first one.
            let _ = asked_once.send(());
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
    /// Returns how much later the responses may be on this machine than on a quiet one.
    pub(super) fn noise(&self) -> Duration {
        self.noise
    }

    /// Checks that nothing failed, that the 99th percentile of quick responses is at most
    /// `p99_max`, or `newcomers_max` over new connections, and that no response took longer than
    /// `longest`, or `newcomers_max` if that is more.
    pub(super) fn check(
        &self,
        p99_max: Duration,
        newcomers_max: Duration,
        longest: Duration,
    ) -> Result<(), Defect> {
        if let Some(failure) = self.failures.first() {
            let count = self.failures.len();
            return Err(Defect::cost(format!("{count} answers failed: {failure}")));
        }
        for (asked, latencies) in &self.latencies {
            if latencies.count() == 0 {
                return Err(Defect::cost(format!("{asked:?} had no answer")));
            }
            let (p99_max, longest) = match asked {
                Asked::Plain | Asked::Json => (p99_max, longest),
                Asked::Newcomer => (newcomers_max, longest.max(newcomers_max)),
                // These requests are slow, so there are too few of them for a percentile.
                Asked::Blocking => (longest, longest),
            };
            if latencies.longest() > longest || latencies.p99() > p99_max {
                return Err(Defect::late(format!("{asked:?} took too long")));
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
        write!(f, "noise {:.1?}; {} failed", self.noise, self.failures.len())?;
        self.failures.iter().take(3).try_for_each(|failure| write!(f, "\n        {failure}"))
    }
}
