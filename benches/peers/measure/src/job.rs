//! One load: what a client is asked to send, and what it saw.

use std::net::SocketAddr;
use std::time::Duration;

/// How long after its load a generator may end.
const GRACE: Duration = Duration::from_secs(15);

/// The slowest rate for which a load with a number of requests is given time.
const REQUESTS_PER_SECOND_MIN: u64 = 2_000;

/// How many requests a pipelining client has in flight.
pub const PIPELINE_DEPTH: usize = 16;

/// How long the body of a large POST is.
pub const BODY_BYTES: usize = 64 * 1024;

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    One,
    /// This many requests in flight per connection.
    Pipelined(usize),
    Body,
    /// A connection for each request.
    Closing,
    /// Messages of this many bytes, without HTTP.
    Echo(usize),
}

/// One load.
#[derive(Clone, Debug)]
pub struct Job {
    pub target: String,
    pub connections: usize,
    pub threads: usize,
    pub form: Form,
    /// The number of requests. Without it, the load ends with its time.
    pub requests: Option<u64>,
    /// Requests per second. Without it, requests are sent as fast as answers come.
    pub rate: Option<u64>,
    /// The threads block on their sockets.
    pub is_blocking: bool,
}

impl Job {
    pub fn get(target: &str, connections: usize, threads: usize) -> Self {
        Self {
            target: target.to_owned(),
            connections,
            threads,
            form: Form::One,
            requests: None,
            rate: None,
            is_blocking: false,
        }
    }

    /// Messages of this length to a server that sends them back.
    pub fn echo(length: usize, connections: usize, threads: usize) -> Self {
        Self::get("", connections, threads).sending(Form::Echo(length))
    }

    pub fn requests(mut self, requests: u64) -> Self {
        self.requests = Some(requests);
        self
    }

    pub fn rate(mut self, per_second: u64) -> Self {
        self.rate = Some(per_second);
        self
    }

    pub fn blocking(mut self) -> Self {
        self.is_blocking = true;
        self
    }

    pub fn sending(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    pub fn url(&self, address: SocketAddr) -> String {
        match self.form {
            Form::Echo(_) if !self.target.starts_with('/') => format!("tcp://{address}"),
            _ => format!("http://{address}{}", self.target),
        }
    }

    /// The text in place of the URL in a printed command.
    pub fn shown_target(&self) -> &str {
        if matches!(self.form, Form::Echo(_)) { "tcp://" } else { &self.target }
    }

    /// The time after which a generator is killed, so that a server that hangs cannot block us.
    pub fn within(&self, seconds: u64) -> Duration {
        let asked = self.requests.map_or(seconds, |requests| requests / REQUESTS_PER_SECOND_MIN);
        Duration::from_secs(asked) + GRACE
    }
}

/// What a load generator saw. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Rates {
    pub requests: u64,
    pub per_second: f64,
    pub p50: f64,
    pub p90: f64,
    /// The same percentile from when a request was sent, if `p90` counts from when it was due.
    pub p90_from_sent: Option<f64>,
    pub p99: f64,
    pub longest: f64,
    pub problems: Vec<String>,
    /// The answers per connection. Only gust counts them.
    pub shares: Option<Shares>,
}

/// Answers per connection.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    pub least: u64,
    pub median: u64,
    pub most: u64,
    pub never_served: u64,
}
