//! The command line, and how it becomes a plan.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the help text, where brackets mark optional parts"
)]

mod live;
mod tls;
#[cfg(feature = "top")]
pub(crate) mod top;

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;
use std::{env, fs};

use clap::{Args, Parser, Subcommand, ValueEnum};
use filoplume_http1::Headers;
use http::Method;

use self::live::LiveArguments;
use self::tls::TlsArguments;
#[cfg(feature = "top")]
use self::top::TopArguments;
use crate::plan::{End, HttpRequest, Plan, Protocol, Requests, Template};
use crate::target::Target;
use crate::units::{parse_count, parse_duration, parse_rate, parse_share};
use crate::url_list::{UrlLine, parse_method};
use crate::verify::{Statuses, Verify};

/// A load generator that reports when its own figures are unreliable.
///
/// It sends requests to a server over many connections, either each after the response to the one
/// before, or at a constant rate. It reports the responses, the latencies, and reasons to doubt the
/// figures.
#[derive(Debug, Parser)]
#[command(
    name = "gust",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
#[command(after_help = "Exit codes: 0 done; 1 worse than --compare allows, more errors than \
                        --max-errors, a response that --expect or --verify rejects, or no \
                        response at all; 2 the run could not start.\n\nThe variable \
                        GUST_AUTHORIZATION is the value of a header Authorization, such as \
                        'Bearer ...', unless -H has one. Other users can see command lines, but \
                        not the environment.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts a TCP server on Filoplume's engine that echoes what it receives. Use it with tcp://.
    Echo {
        /// The address to listen on: HOST:PORT, or :PORT for this machine.
        #[arg(long, default_value = ":8000")]
        listen: String,
        /// Number of event loops. [default: one per core]
        #[arg(short, long)]
        threads: Option<usize>,
    },
    /// Starts a small HTTP server on Filoplume's engine.
    Serve {
        /// The address to listen on: HOST:PORT, or :PORT for this machine.
        #[arg(long, default_value = ":12345")]
        listen: String,
        /// Number of event loops. [default: one per core]
        #[arg(short, long)]
        threads: Option<usize>,
    },
    /// Shows the console of an app in the terminal: what its requests, threads and routes do now.
    #[cfg(feature = "top")]
    Top(TopArguments),
}

#[derive(Args, Debug)]
pub(crate) struct LoadArguments {
    /// The server: http://HOST[:PORT][/PATH], the same with https://, ws:// or wss:// (an echo of
    /// messages, or --hold), tcp://HOST:PORT (an echo server), unix:/SOCKET[:/PATH], or
    /// :PORT[/PATH].
    #[arg(value_name = "URL", required = true)]
    pub(crate) url: Option<String>,

    /// Number of connections that are open at the same time.
    #[arg(short, long, default_value = "64", value_parser = parse_count, help_heading = "Load")]
    connections: u64,
    /// Number of threads. [default: half of the cores]
    #[arg(short, long, help_heading = "Load")]
    threads: Option<usize>,
    /// Length of the run: 10s, 500ms, 2m. [default: 10s, or unlimited with -n]
    #[arg(short, long, value_parser = parse_duration, help_heading = "Load")]
    duration: Option<Duration>,
    /// Total number of requests, without those of the warm-up: 1000, 100k, 1M.
    #[arg(short = 'n', long, value_parser = parse_count, help_heading = "Load")]
    requests: Option<u64>,
    /// Number of requests in flight on each connection.
    #[arg(short, long, default_value = "1", help_heading = "Load")]
    pipeline: usize,
    /// Requests per second over all connections, independent of the responses. Latency then counts
    /// from the time at which a request was due. Without a rate, each response is followed by the
    /// next request.
    #[arg(short, long, value_parser = parse_rate, help_heading = "Load")]
    rate: Option<f64>,
    /// Grow from zero to the full load in this time. With -r the rate grows, otherwise the number
    /// of connections.
    #[arg(long, value_parser = parse_duration, default_value = "0s", help_heading = "Load")]
    ramp: Duration,
    /// Send requests for this long before anything is counted.
    #[arg(long, value_parser = parse_duration, default_value = "0s", help_heading = "Load")]
    warmup: Duration,
    /// Open a new connection for every request.
    #[arg(long, help_heading = "Load")]
    no_keepalive: bool,
    /// Open at most this many connections per second.
    #[arg(long, value_parser = parse_rate, help_heading = "Load")]
    connect_rate: Option<f64>,
    /// Give up on a response, or on opening a connection, after this time.
    #[arg(long, value_parser = parse_duration, default_value = "10s", help_heading = "Load")]
    timeout: Duration,
    /// Use this many threads with blocking sockets, which wait for one response after the other,
    /// instead of event loops.
    #[arg(
        long,
        conflicts_with_all = ["threads", "rate", "ramp", "connect_rate"],
        help_heading = "Load"
    )]
    blocking_threads: Option<usize>,

    /// The method. [default: GET, or POST with a body]
    #[arg(short = 'X', long, help_heading = "Request")]
    method: Option<String>,
    /// A header, as 'Name: value'. May be repeated.
    #[arg(short = 'H', long = "header", help_heading = "Request")]
    headers: Vec<String>,
    /// The content to send.
    #[arg(short, long, conflicts_with = "body_file", help_heading = "Request")]
    body: Option<String>,
    /// A file with the content to send.
    #[arg(short = 'B', long, help_heading = "Request")]
    body_file: Option<PathBuf>,
    /// A file of requests to choose from, one per line: [WEIGHT] [METHOD] PATH. Lines that begin
    /// with # are skipped.
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    urls: Option<PathBuf>,
    /// Number of bytes in a message to tcp:// or ws://. [default: 64]
    #[arg(short, long, value_parser = parse_count, help_heading = "Request")]
    length: Option<u64>,

    #[command(flatten)]
    live: LiveArguments,

    #[command(flatten)]
    tls: TlsArguments,

    /// Check each response: that it equals the request (echo), or that the status, or status and
    /// content (body), equal those of the first response. [default: echo for tcp:// and ws://,
    /// otherwise body]
    #[arg(
        long,
        num_args = 0..=1,
        default_missing_value = "",
        require_equals = true,
        help_heading = "Checks"
    )]
    verify: Option<String>,
    /// Statuses that are not errors: 2xx, 200,304.
    #[arg(long, value_parser = Statuses::parse, help_heading = "Checks")]
    expect: Option<Statuses>,
    /// Stop, and exit with 1, if there are more errors than this.
    #[arg(long, value_parser = parse_count, help_heading = "Checks")]
    max_errors: Option<u64>,
    /// The process of the server. The report then also has its CPU time per request.
    #[arg(long, value_name = "PID", help_heading = "Checks")]
    server_pid: Option<u32>,

    /// The format of the report.
    #[arg(long, value_enum, default_value = "text", help_heading = "Report")]
    pub(crate) format: Format,
    /// Save the run in this file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) save: Option<PathBuf>,
    /// Compare with a saved run, and exit with 1 if this one is worse.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) compare: Option<PathBuf>,
    /// How much worse a figure may become.
    #[arg(
        long,
        value_parser = parse_share,
        default_value = "5%",
        requires = "compare",
        help_heading = "Report"
    )]
    pub(crate) threshold: f64,
    /// Write a page with charts into this file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) html: Option<PathBuf>,
    /// Show no progress.
    #[arg(short, long, help_heading = "Report")]
    pub(crate) quiet: bool,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// Like the output of wrk.
    Wrk,
    /// Like the output of ab.
    Ab,
    /// Like the output of clients for echo servers, such as May's.
    Echo,
    /// All figures, as --save writes them.
    Json,
    /// A line of names and a line of values.
    Csv,
}

impl LoadArguments {
    /// Returns the plan, with all defaults filled in, or what is wrong with the arguments.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let url = self.url.as_deref().unwrap_or_default();
        let target = Target::parse(url)?;
        let (protocol, holds) = self.protocol(&target)?;
        let depth = bounded("--pipeline", self.pipeline, 1, 4096)?;
        let connections = usize::try_from(self.connections).unwrap_or(usize::MAX);
        let connections = bounded("--connections", connections, 1, 1_000_000)?;
        if self.closes() && depth > 1 {
            return Err("--no-keepalive (or 'Connection: close') allows one request per \
                        connection: leave out --pipeline"
                .to_owned());
        }
        if self.timeout.is_zero() {
            return Err("--timeout must be longer than zero".to_owned());
        }
        if self.requests == Some(0) || self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err("there is nothing to do: -n and -d must be greater than zero".to_owned());
        }
        if self.length.is_some() && matches!(protocol, Protocol::Http | Protocol::Events) {
            return Err(
                "-l is for tcp:// and ws://: use -b or -B for the content of a request".to_owned()
            );
        }
        let (websocket, requests) = match protocol {
            Protocol::Http => (None, self.http_requests(&target, depth)?),
            Protocol::Echo => (None, self.echo_requests(depth)?),
            Protocol::Events => (None, self.event_requests(&target)?),
            Protocol::WebSocket => {
                let (websocket, requests) = self.websocket(&target, depth)?;
                (Some(websocket), requests)
            }
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let wanted = self.blocking_threads.or(self.threads).unwrap_or((cores / 2).max(1));
        let threads = bounded("threads", wanted, 1, 10_000)?.min(connections);
        Ok(Plan {
            target: url.to_owned(),
            address: target.host.resolve()?,
            tls: self.tls.tls(&target)?,
            protocol,
            websocket,
            holds,
            requests,
            connections,
            threads,
            is_blocking: self.blocking_threads.is_some(),
            depth,
            keep_alive: !self.closes(),
            end: self.end(),
            rate: self.rate,
            ramp: self.ramp,
            connect_rate: self.connect_rate,
            timeout: self.timeout,
            warmup: self.warmup,
            verify: self.verify(protocol)?,
            expect: self.expect.clone(),
            errors_max: self.max_errors,
            server: self.server_pid,
        })
    }

    pub(crate) fn errors_max(&self) -> Option<u64> {
        self.max_errors
    }

    fn end(&self) -> End {
        let default = self.requests.is_none().then_some(Duration::from_secs(10));
        End { after: self.duration.or(default), requests: self.requests }
    }

    fn http_requests(&self, target: &Target, depth: usize) -> Result<Requests, String> {
        let headers = self.headers()?;
        let content = self.content()?;
        let method = match &self.method {
            Some(name) => parse_method(name)?,
            None if content.is_empty() => Method::GET,
            None => Method::POST,
        };
        let template = |method: &Method, path: &str| {
            let request = HttpRequest {
                method,
                path,
                authority: &target.authority,
                headers: &headers,
                content: &content,
                closes: self.closes(),
            };
            Template::http(&request, depth)
        };
        let Some(file) = &self.urls else {
            return template(&method, &target.path).map(Requests::single);
        };
        let text = fs::read_to_string(file).map_err(|error| cannot_read(file, &error))?;
        let mut weighted = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if let Some(line) = UrlLine::parse(line, number + 1)? {
                let method = line.method.as_ref().unwrap_or(&method);
                weighted.push((line.weight, template(method, &line.path)?));
            }
        }
        if weighted.is_empty() {
            return Err(format!("{} contains no request", file.display()));
        }
        Requests::new(weighted)
    }

    fn echo_requests(&self, depth: usize) -> Result<Requests, String> {
        let is_http = self.method.is_some() || !self.headers.is_empty() || self.urls.is_some();
        if is_http || self.expect.is_some() || self.body.is_some() || self.body_file.is_some() {
            return Err(
                "tcp:// sends messages of -l bytes: methods, headers, bodies, --urls and --expect \
                        are for http://"
                    .to_owned(),
            );
        }
        let length = self.message_length(64 * 1024 * 1024)?;
        Ok(Requests::single(Template::message(length, depth)))
    }

    /// Returns the number of bytes in a message, which is at most `most`.
    fn message_length(&self, most: usize) -> Result<usize, String> {
        let length = usize::try_from(self.length.unwrap_or(64)).unwrap_or(usize::MAX);
        bounded("--length", length, 1, most)
    }

    fn headers(&self) -> Result<Headers, String> {
        headers_of(&self.headers)
    }

    fn content(&self) -> Result<Vec<u8>, String> {
        match (&self.body, &self.body_file) {
            (Some(body), _) => Ok(body.clone().into_bytes()),
            (None, Some(file)) => fs::read(file).map_err(|error| cannot_read(file, &error)),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Returns whether `--no-keepalive` or `-H 'Connection: close'` is given, which means the same.
    fn closes(&self) -> bool {
        let says_close = |header: &String| {
            header.split_once(':').is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("connection")
                    && value.trim().eq_ignore_ascii_case("close")
            })
        };
        self.no_keepalive || self.headers.iter().any(says_close)
    }

    fn verify(&self, protocol: Protocol) -> Result<Option<Verify>, String> {
        let Some(what) = &self.verify else { return Ok(None) };
        match (what.as_str(), protocol) {
            ("" | "echo", Protocol::Echo | Protocol::WebSocket) | ("echo", Protocol::Http) => {
                Ok(Some(Verify::Echo))
            }
            ("" | "body", Protocol::Http) => Ok(Some(Verify::Body)),
            ("status", Protocol::Http) => Ok(Some(Verify::Status)),
            _ => Err(format!(
                "--verify={what} must be echo, status or body (tcp:// and ws:// have only echo)"
            )),
        }
    }
}

/// The variable with the value of `Authorization`: other users of the machine can see the command
/// line of a program, but not its environment.
const AUTHORIZATION: &str = "GUST_AUTHORIZATION";

/// Returns the headers of lines such as `Name: value`, and the header from the environment.
fn headers_of(lines: &[String]) -> Result<Headers, String> {
    let authorization = match env::var(AUTHORIZATION) {
        Ok(value) => Some(value),
        Err(env::VarError::NotPresent) => None,
        Err(env::VarError::NotUnicode(_)) => return Err(format!("{AUTHORIZATION} is not UTF-8")),
    };
    headers_with(lines, authorization.as_deref())
}

/// Like `headers_of`. `authorization` is used if no line has `Authorization`.
fn headers_with(lines: &[String], authorization: Option<&str>) -> Result<Headers, String> {
    let mut headers = Headers::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("{line:?} is not a header; write 'Name: value'"))?;
        headers
            .append(name.trim(), value.trim())
            .map_err(|error| format!("{line:?} is not a valid header: {error}"))?;
    }
    let authorization = authorization.map(str::trim).filter(|value| !value.is_empty());
    if let Some(value) = authorization.filter(|_| !headers.contains("authorization")) {
        headers
            .append("authorization", value)
            .map_err(|error| format!("{AUTHORIZATION} is not the value of a header: {error}"))?;
    }
    Ok(headers)
}

fn bounded(name: &str, value: usize, least: usize, most: usize) -> Result<usize, String> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{name} is {value}, but must be from {least} to {most}"))
    }
}

fn cannot_read(file: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", file.display())
}

/// Returns the plan of a command line, for tests.
#[cfg(test)]
pub(crate) fn plan(arguments: &str) -> Result<Plan, String> {
    let words = std::iter::once("gust").chain(arguments.split_whitespace());
    Arguments::try_parse_from(words).map_err(|error| error.to_string())?.load.plan()
}

#[cfg(test)]
mod tests;
