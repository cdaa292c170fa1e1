//! Long-lived connections: WebSockets, event streams, TLS, and contents of a gigabyte, for our
//! server and the peers.

mod held;
mod questions;
mod tls;
mod transfers;

use std::io;
use std::time::Duration;

use self::questions::{Asked, Kind, QUESTIONS, Question};
use self::tls::{Certificate, agreed};
use crate::args::Args;
use crate::build::{Program, output_folder};
use crate::child::Child;
use crate::generator::{Generator, Tools};
use crate::gust;
use crate::job::Rates;
use crate::observe::observe;
use crate::printed::Printed;
use crate::report::{self, Figures, Row};
use crate::rounds::Turns;
use crate::running::{Running, guarded};
use crate::scenario::per_request;
use crate::server::Server;

/// How long after its load a generator may end.
const GRACE: Duration = Duration::from_secs(30);

/// The share of handshakes that must resume a session if all are meant to. The first handshake of
/// each connection of the generator is a full one.
const RESUMED_MIN: f64 = 0.95;

/// Whether a question is asked. A question of a group is asked only if `only` has its name or that
/// of the group.
fn is_asked(name: &str, group: Option<&str>, only: &[String]) -> bool {
    if only.is_empty() {
        return group.is_none();
    }
    only.iter().any(|one| one == name || Some(&**one) == group)
}

/// Measures the questions, one after the other. If `only` has names, others are left out.
pub fn measure(
    args: &Args,
    tools: &Tools,
    only: &[String],
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    check(only)?;
    let certificate = Certificate::make(&output_folder().map_err(io::Error::other)?)?;
    let asked = QUESTIONS.iter().filter(|question| is_asked(question.name, question.group, only));
    for question in asked {
        let programs = programs(question, &certificate);
        let holds = question.kind == Kind::Silent;
        let rows = question.who.iter().map(|asked| Row::new(asked.label, is_ours(asked))).collect();
        let turns = Turns { name: question.name, rounds: args.rounds, repeats_max: args.repeats };
        let rows = turns.measure(rows, |index| {
            let asked = &question.who[index];
            let program =
                programs[index].as_ref().map_err(|error| io::Error::other(error.clone()))?;
            if holds {
                held::measure(tools, asked, program)
            } else {
                load(args.seconds(), tools, question, asked, program)
            }
        });
        let rows = same_tls(rows);
        let reference = question.who[usize::from(!holds)].label;
        let command = command_line(question, args.seconds());
        let table = report::table_of("server", question.columns, &rows, reference);
        printed
            .add(&format!("\n## {}\n\n{}\n\n{command}\n{table}", question.name, question.asks))?;
    }
    if is_asked(transfers::NAME, None, only) {
        transfers::measure(args, tools, &certificate, printed)?;
    }
    Ok(())
}

/// Refuses names that no question has.
fn check(only: &[String]) -> io::Result<()> {
    let mut names = vec![transfers::NAME];
    for question in QUESTIONS {
        names.push(question.name);
        names.extend(question.group.filter(|group| !names.contains(group)));
    }
    match only.iter().find(|one| !names.contains(&&***one)) {
        None => Ok(()),
        Some(unknown) => {
            let names = names.join(", ");
            Err(io::Error::other(format!("--live does not ask {unknown}; it asks {names}")))
        }
    }
}

fn is_ours(asked: &Asked) -> bool {
    asked.server == "live_ours"
}

/// The programs of a question. If one cannot be built, the error is a problem of its row.
fn programs(question: &Question, certificate: &Certificate) -> Vec<Result<Program, String>> {
    let program = |asked: &Asked| {
        let server = Server::named(asked.server)?;
        let mut program = Program::of(&server, false)?;
        if asked.url.0 == "https" {
            program.environment = certificate.environment();
        }
        let bytes = question.broadcast_bytes.map(|bytes| ("BROADCAST_BYTES", bytes.to_string()));
        program.environment.extend(bytes);
        Ok(program)
    };
    question.who.iter().map(program).collect()
}

/// Adds a problem to each row whose server negotiated other TLS parameters than the first one.
fn same_tls(mut rows: Vec<Row>) -> Vec<Row> {
    let first = rows.first().and_then(|row| row.last_text("tls")).map(str::to_owned);
    for row in &mut rows {
        let differs = row.last_text("tls") != first.as_deref();
        if let (true, Some(Ok(figures))) = (differs, row.rounds.last_mut()) {
            figures.problems.push("another kind of TLS".to_owned());
        }
    }
    rows
}

/// The options of gust for a question, without the URL.
fn options(question: &Question, asked: &Asked, seconds: u64) -> Vec<String> {
    let mut options: Vec<String> = question.options.iter().map(|&option| option.into()).collect();
    if question.kind == Kind::Receiving {
        options.push(if asked.url.0 == "ws" { "--hold" } else { "--sse" }.to_owned());
    }
    options.push(format!("-d{seconds}s"));
    options
}

/// The scheme as gust knows it.
fn scheme(asked: &Asked) -> &'static str {
    if asked.url.0 == "http+sse" { "http" } else { asked.url.0 }
}

fn command_line(question: &Question, seconds: u64) -> String {
    if question.kind == Kind::Silent {
        return String::new();
    }
    let ours = &question.who[0];
    let options = options(question, ours, seconds).join(" ");
    format!("- `gust {options} {}://ADDRESS{}`\n", scheme(ours), ours.url.1)
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
    let scheme = scheme(asked);
    let tls = if scheme == "https" { agreed(server.address)? } else { String::new() };
    let ((rates, live), spent) = observe(server, |server| {
        let child = start_gust(tools, &options, scheme, asked.url.1, server, within)?;
        let ended = child.finish()?;
        Ok((Generator::Gust.read(&ended)?, gust::live(&ended.output)))
    })?;
    let Rates { requests, per_second, p50, p99, longest, problems, .. } = rates;
    let handshakes = live.handshakes.unwrap_or_default();
    let figures = per_request(&spent, requests)
        .number("rate", per_second)
        .number("p50", p50)
        .number("p99", p99)
        .number("longest", longest)
        .number("full", handshakes.full as f64)
        .number("resumed", handshakes.resumed as f64)
        .text("tls", tls)
        .problems(problems)
        .problems(wrong_handshakes(question.kind, handshakes).into_iter().collect());
    Ok(figures)
}

/// Returns a problem if the handshakes were not of the kind that the question is about.
fn wrong_handshakes(kind: Kind, handshakes: gust::Handshakes) -> Option<String> {
    let gust::Handshakes { full, resumed } = handshakes;
    let enough = (full + resumed) as f64 * RESUMED_MIN;
    match kind {
        Kind::FullHandshakes if resumed > 0 || full == 0 => {
            Some(format!("not all handshakes were full: {full} full, {resumed} resumed"))
        }
        Kind::ResumedHandshakes if resumed == 0 || (resumed as f64) < enough => {
            Some(format!("not all handshakes resumed: {full} full, {resumed} resumed"))
        }
        _ => None,
    }
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
            let same = QUESTIONS.iter().filter(|other| other.name == question.name);
            assert_eq!(same.count(), 1, "{}", question.name);
        }
    }

    #[test]
    fn a_question_is_typed() {
        let question = |name| QUESTIONS.iter().find(|question| question.name == name).unwrap();
        for (name, expected) in [
            ("websocket_echo", "-c100 -l100 -t1 -d5s ws://ADDRESS/echo"),
            ("websocket_16384_1000", "-c1000 -l16384 -t1 -d5s ws://ADDRESS/echo"),
            ("events", "-c10000 -t1 --warmup=5s --sse -d5s http://ADDRESS/feed"),
            ("broadcast", "-c10000 -t1 --warmup=5s --hold -d5s ws://ADDRESS/room"),
        ] {
            assert_eq!(command_line(question(name), 5), format!("- `gust {expected}`\n"));
        }
    }

    #[test]
    fn questions_of_a_group_are_asked_by_name_only() {
        let only = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for (name, group, words, expected) in [
            ("broadcast", None, &[][..], true),
            ("broadcast_100", Some("broadcast_sizes"), &[], false),
            ("broadcast_100", Some("broadcast_sizes"), &["broadcast_sizes"], true),
            ("broadcast_100", Some("broadcast_sizes"), &["events", "broadcast_100"], true),
            ("broadcast", None, &["events"], false),
        ] {
            assert_eq!(is_asked(name, group, &only(words)), expected, "{name} {words:?}");
        }
        assert!(check(&only(&["held", "transfers", "websocket_sizes"])).is_ok());
        let error = check(&only(&["hold"])).unwrap_err().to_string();
        assert!(error.contains("does not ask hold; it asks transfers, websocket_echo"), "{error}");
    }

    #[test]
    fn another_kind_of_tls_is_a_problem() {
        let row = |tls: &str| {
            let mut row = Row::new("a", false);
            row.rounds.push(Ok(Figures::default().text("tls", tls.to_owned())));
            row
        };
        let rows = same_tls(vec![row("TLSv1.3"), row("TLSv1.3"), row("TLSv1.2")]);
        let problems: Vec<String> = rows.iter().map(Row::problems).collect();
        assert_eq!(problems, ["", "", "another kind of TLS"]);
    }

    #[test]
    fn handshakes_of_the_other_kind_are_a_problem() {
        let told = |kind, full, resumed| {
            wrong_handshakes(kind, gust::Handshakes { full, resumed }).is_some()
        };
        assert!(!told(Kind::FullHandshakes, 100, 0) && told(Kind::FullHandshakes, 100, 1));
        assert!(!told(Kind::ResumedHandshakes, 16, 9_984));
        assert!(told(Kind::ResumedHandshakes, 9_000, 1_000));
        assert!(told(Kind::ResumedHandshakes, 0, 0) && !told(Kind::Asking, 64, 0));
    }
}
