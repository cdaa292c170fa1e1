//! Connections that live: WebSockets, event streams, TLS, and contents of a gigabyte, ours beside
//! the peers.

mod transfers;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::args::Args;
use crate::build::{Program, output_folder};
use crate::child::Child;
use crate::generator::{self, Generator, Rates, Tools};
use crate::printed::Printed;
use crate::proc::Size;
use crate::report::{self, Column, Figures, Row, Show};
use crate::rounds::Turns;
use crate::running::{Running, guarded};
use crate::scenario::{
    CPU, LONGEST, MEMORY, OTHERS, P50, P99, RATE, SWITCHES, THREADS, USER, column, per_request,
};
use crate::server::Server;

/// How many connections are only held.
const HELD: usize = 10_000;

/// How long these are held, and when the memory is looked at: after the burst of their handshakes.
const HELD_SECONDS: u64 = 16;
const LOOK_AFTER: Duration = Duration::from_secs(14);

/// How long after its load a generator may end.
const GRACE: Duration = Duration::from_secs(30);

const COLUMNS: &[Column] = &[RATE, CPU, USER, SWITCHES, P50, P99, LONGEST, THREADS, MEMORY, OTHERS];

const ARRIVAL_COLUMNS: &[Column] =
    &[RATE, CPU, column("p50", "p50 ms", 1, Show::Compared), P99, LONGEST, MEMORY, OTHERS];

const HELD_COLUMNS: &[Column] =
    &[column("per connection", "RSS KiB/connection", 2, Show::Compared), MEMORY, THREADS];

/// A question to several servers.
struct Question {
    name: &'static str,
    asks: &'static str,
    /// Our name is first, the one that the ratios are to is second.
    who: &'static [Asked],
    /// The options of gust besides the length of the run.
    options: &'static [&'static str],
    columns: &'static [Column],
    holds: bool,
}

/// One server of a question.
struct Asked {
    label: &'static str,
    server: &'static str,
    /// With a scheme, without the address.
    url: (&'static str, &'static str),
}

const fn asked(
    label: &'static str,
    server: &'static str,
    scheme: &'static str,
    path: &'static str,
) -> Asked {
    Asked { label, server, url: (scheme, path) }
}

const TLS: &[Asked] = &[
    asked("ours", "live_ours", "https", "/plaintext"),
    asked("actix-web", "tls_actix", "https", "/plaintext"),
    asked("axum", "tls_axum", "https", "/plaintext"),
];

const QUESTIONS: &[Question] = &[
    Question {
        name: "websocket_echo",
        asks: "What does a message of 100 bytes and its echo cost, on 100 WebSockets?",
        who: &[
            asked("ours", "live_ours", "ws", "/echo"),
            asked("tokio-tungstenite", "ws_tungstenite", "ws", "/"),
            asked("gorilla/websocket", "ws_go", "ws", "/"),
            asked("ws on Node", "ws_node", "ws", "/"),
        ],
        options: &["-c100", "-l100", "-t1"],
        columns: COLUMNS,
        holds: false,
    },
    Question {
        name: "websocket_deflate",
        asks: "The same with permessage-deflate.",
        who: &[
            asked("ours", "live_ours", "ws", "/deflate"),
            asked("gorilla/websocket", "ws_go_deflate", "ws", "/"),
            asked("ws on Node", "ws_node_deflate", "ws", "/"),
        ],
        options: &["-c100", "-l100", "-t1", "--deflate"],
        columns: COLUMNS,
        holds: false,
    },
    Question {
        name: "broadcast",
        asks: "How long does a broadcast of 1 KiB need to 10,000 WebSockets? Twice a second; the \
               times are from the call to the arrival of each message, the maximum is the last \
               one.",
        who: &[
            asked("ours", "live_ours", "ws", "/room"),
            asked("a raw loop that writes", "live_raw", "ws", "/"),
        ],
        options: &["-c10000", "--hold", "-t1", "--warmup=5s"],
        columns: ARRIVAL_COLUMNS,
        holds: false,
    },
    Question {
        name: "events",
        asks: "The same by server-sent events.",
        who: &[
            asked("ours", "live_ours", "http", "/feed"),
            asked("a raw loop that writes (WebSocket)", "live_raw", "ws", "/"),
        ],
        options: &["-c10000", "-t1", "--warmup=5s"],
        columns: ARRIVAL_COLUMNS,
        holds: false,
    },
    Question {
        name: "tls_plain64",
        asks: "What does a small request cost over TLS, on 64 connections?",
        who: TLS,
        options: &["-c64", "-t1", "--insecure"],
        columns: COLUMNS,
        holds: false,
    },
    Question {
        name: "tls_handshakes",
        asks: "What does a full handshake cost, with one request each?",
        who: TLS,
        options: &["-c16", "-t1", "--insecure", "--no-keepalive", "--no-resumption"],
        columns: COLUMNS,
        holds: false,
    },
    Question {
        name: "tls_resumed",
        asks: "And a resumed one?",
        who: TLS,
        options: &["-c16", "-t1", "--insecure", "--no-keepalive"],
        columns: COLUMNS,
        holds: false,
    },
    Question {
        name: "held",
        asks: "What do 10,000 connections cost that are open and say nothing, beyond the first \
               ones? Those of HTTP have asked once.",
        who: &[
            asked("ours, HTTP", "live_ours", "http", "/plaintext"),
            asked("ours, WebSocket", "live_ours", "ws", "/quiet"),
            asked("ours, events", "live_ours", "http+sse", "/quiet_feed"),
            asked("ours, TLS", "live_ours", "https", "/plaintext"),
            asked("axum, TLS", "tls_axum", "https", "/plaintext"),
            asked("actix-web, TLS", "tls_actix", "https", "/plaintext"),
        ],
        options: &[],
        columns: HELD_COLUMNS,
        holds: true,
    },
];

/// The certificate that all servers use, and its key.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// Makes one with openssl: a curve that all servers are quick with.
    fn make(folder: &Path) -> io::Result<Self> {
        let (certificate, key) = (folder.join("live-cert.pem"), folder.join("live-key.pem"));
        let status = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()?
            .status;
        if status.success() {
            Ok(Self { certificate, key })
        } else {
            Err(io::Error::other("openssl cannot make a certificate"))
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CERTIFICATE", self.certificate.display().to_string()),
            ("KEY", self.key.display().to_string()),
        ]
    }
}

/// Measures everything, question by question. `only` leaves out those with other names.
pub fn measure(
    args: &Args,
    tools: &Tools,
    only: &[String],
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let certificate = Certificate::make(&output_folder().map_err(io::Error::other)?)?;
    let is_asked = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    for question in QUESTIONS.iter().filter(|question| is_asked(question.name)) {
        let programs = programs(question, &certificate)?;
        let rows = question.who.iter().map(|asked| Row::new(asked.label, is_ours(asked))).collect();
        let rounds = if question.holds { 1 } else { args.rounds };
        let turns = Turns { name: question.name, rounds, repeats_max: args.repeats };
        let rows = turns.measure(rows, |index| {
            let (asked, program) = (&question.who[index], &programs[index]);
            if question.holds {
                held(tools, asked, program)
            } else {
                load(args.seconds(), tools, question, asked, program)
            }
        });
        let reference = question.who[usize::from(!question.holds)].label;
        let command = command_line(question, args.seconds());
        let table = report::table_of("server", question.columns, &rows, reference);
        printed
            .add(&format!("\n## {}\n\n{}\n\n{command}\n{table}", question.name, question.asks))?;
    }
    if is_asked(transfers::NAME) {
        transfers::measure(args, &certificate, printed)?;
    }
    Ok(())
}

fn is_ours(asked: &Asked) -> bool {
    asked.server == "live_ours"
}

fn programs(question: &Question, certificate: &Certificate) -> io::Result<Vec<Program>> {
    let program = |asked: &Asked| {
        let server = Server::named(asked.server).map_err(io::Error::other)?;
        let mut program = Program::of(&server, false).map_err(io::Error::other)?;
        if asked.url.0 == "https" {
            program.environment = certificate.environment();
        }
        Ok(program)
    };
    question.who.iter().map(program).collect()
}

/// The options of gust for a question, without the URL.
fn options(question: &Question, asked: &Asked, seconds: u64) -> Vec<String> {
    let mut options: Vec<String> = question.options.iter().map(|&option| option.into()).collect();
    if question.name == "events" {
        options.push(if asked.url.0 == "ws" { "--hold" } else { "--sse" }.to_owned());
    }
    options.push(format!("-d{seconds}s"));
    options
}

fn command_line(question: &Question, seconds: u64) -> String {
    if question.holds {
        return String::new();
    }
    let ours = &question.who[0];
    let (scheme, path) = ours.url;
    let options = options(question, ours, seconds).join(" ");
    format!("- `gust {options} {scheme}://ADDRESS{path}`\n")
}

fn start_gust(
    tools: &Tools,
    options: &[String],
    scheme: &str,
    path: &str,
    server: &Running,
    within: Duration,
) -> io::Result<Child> {
    let url = format!("{scheme}://{}{path}", server.address);
    let mut command = guarded(&tools.gust, "KILL");
    Child::spawn(command.args(options).args(["--format", "json", "--quiet", &url]), within)
}

fn load(
    seconds: u64,
    tools: &Tools,
    question: &Question,
    asked: &Asked,
    program: &Program,
) -> io::Result<Figures> {
    let server = Running::start(program)?;
    let options = options(question, asked, seconds);
    let within = Duration::from_secs(seconds) + GRACE;
    let (rates, spent) = generator::observe(server, |server| {
        let (scheme, path) = asked.url;
        let child = start_gust(tools, &options, scheme, path, server, within)?;
        Generator::Gust.read(&child.finish()?)
    })?;
    let Rates { requests, per_second, p50, p99, longest, problems, .. } = rates;
    let figures = per_request(&spent, requests)
        .number("rate", per_second)
        .number("p50", p50)
        .number("p99", p99)
        .number("longest", longest);
    Ok(figures.problems(problems))
}

/// Opens the connections, holds them, and looks at the server's memory while they are silent.
fn held(tools: &Tools, asked: &Asked, program: &Program) -> io::Result<Figures> {
    let server = Running::start(program)?;
    let (scheme, path) = asked.url;
    let (scheme, kind): (_, &[&str]) = match scheme {
        "ws" => ("ws", &["--hold"]),
        "http+sse" => ("http", &["--sse"]),
        // One request on each connection while they are held.
        _ => (scheme, &["-r625", "--insecure"]),
    };
    let options = |connections: usize, seconds: u64| {
        let mut options =
            vec![format!("-c{connections}"), "-t1".to_owned(), format!("-d{seconds}s")];
        let kind = kind.iter().filter(|option| scheme == "https" || **option != "--insecure");
        options.extend(kind.map(|&option| option.to_owned()));
        options
    };
    let within = Duration::from_secs(HELD_SECONDS) + GRACE;
    // What the first connections allocate once is not the price of one.
    start_gust(tools, &options(64, 1), scheme, path, &server, within)?.finish()?;
    let before = Size::of(server.pid())?;
    let child = start_gust(tools, &options(HELD, HELD_SECONDS), scheme, path, &server, within)?;
    thread::sleep(LOOK_AFTER);
    let size = Size::of(server.pid())?;
    let ended = child.finish()?;
    let problems = Generator::Gust.read(&ended).map(|rates| rates.problems).unwrap_or_default();
    let grown = size.resident_kib.saturating_sub(before.resident_kib) as f64;
    let figures = Figures::default()
        .number("per connection", grown / HELD as f64)
        .number("memory", size.resident_kib as f64 / 1024.0)
        .number("threads", size.threads as f64);
    // Whoever is only held is never served, and need not be.
    let problems = problems.into_iter().filter(|one| !one.starts_with("connections never served"));
    Ok(figures.problems(problems.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_asks_known_servers() {
        for question in QUESTIONS {
            for asked in question.who {
                assert!(Server::named(asked.server).is_ok(), "{}: {}", question.name, asked.server);
            }
            assert!(is_ours(&question.who[0]), "{}", question.name);
        }
    }

    #[test]
    fn a_question_is_typed() {
        let question = |name| QUESTIONS.iter().find(|question| question.name == name).unwrap();
        assert_eq!(
            command_line(question("websocket_echo"), 5),
            "- `gust -c100 -l100 -t1 -d5s ws://ADDRESS/echo`\n"
        );
        assert_eq!(
            command_line(question("events"), 5),
            "- `gust -c10000 -t1 --warmup=5s --sse -d5s http://ADDRESS/feed`\n"
        );
    }
}
