//! A client that measures latencies while the test does something else.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::client::Client;

/// The pause between two requests, so that this client causes little load.
const PAUSE: Duration = Duration::from_millis(1);

/// A client on its own thread that sends requests until it is stopped.
#[derive(Debug)]
pub struct GoodClient {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Latencies>,
}

/// The latencies of responses.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl GoodClient {
    /// Starts to request `target`. Every response must be a `200`.
    #[track_caller]
    pub fn start(address: SocketAddr, target: &'static str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut client = Client::connect(address);
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let mut latencies = Latencies::default();
                while !is_over.load(Ordering::SeqCst) {
                    let started = Instant::now();
                    assert_eq!(client.get(target).status, 200);
                    latencies.0.push(started.elapsed());
                    thread::sleep(PAUSE);
                }
                latencies
            }
        });
        Self { is_over, thread }
    }

    /// Stops, and returns the measured latencies.
    #[track_caller]
    pub fn stop(self) -> Latencies {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("the good client was served")
    }
}

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// Adds all latencies of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the median.
    #[track_caller]
    pub fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted[(sorted.len() - 1) / 2]
    }

    /// Returns the longest latency.
    pub fn longest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }

    /// Returns the 99th percentile.
    #[track_caller]
    pub fn p99(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted[(sorted.len() - 1) * 99 / 100]
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers, p99 {:?}, longest {:?}", self.count(), self.p99(), self.longest())
    }
}
