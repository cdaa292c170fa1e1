//! Comparisons that others published, measured today: the same command lines, today's versions of
//! their servers, and ours.

mod texts;

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use crate::args::Args;
use crate::build::{Program, output_folder};
use crate::child::{Child, Ended};
use crate::echo::{AB_COLUMNS, ab_on_one_thread, large};
use crate::generator::{self, Generator, Tools};
use crate::job::{Form, Job, PIPELINE_DEPTH, Rates};
use crate::observe::observe;
use crate::printed::Printed;
use crate::report::{self, Column, Figures, Row, Show};
use crate::rounds::{Built, Turns};
use crate::running::{Running, guarded};
use crate::scenario::{MEMORY, OTHERS, P50, P99, USER, column, per_request};
use crate::server::{ECHO_REFERENCE, REFERENCE, Server};
use crate::{fair, gust};

use texts::Claim;

const TARGET: &str = "/plaintext";

/// The row in which wrk asks the server that never reads.
const FLOODED: &str = "flood (never reads, is stopped in the end)";

/// The echo servers for the tables of May and mioco.
const ECHO_SERVERS: &[&str] = &[ECHO_REFERENCE, "echo_ours", "echo_tokio", "echo_may"];

const RATE: Column = column("rate", "requests/s", 0, Show::Compared);
const CPU: Column = column("cpu", "server CPU µs/request", 2, Show::Compared);

const LOAD_COLUMNS: &[Column] = &[
    RATE,
    CPU,
    USER,
    column("client", "client CPU µs/request", 2, Show::Median),
    P50,
    P99,
    OTHERS,
];

const ECHO_COLUMNS: &[Column] = &[
    column("rate", "echoes/s", 0, Show::Compared),
    column("cpu", "server CPU µs/echo", 2, Show::Compared),
    USER,
    P50,
    P99,
    MEMORY,
    OTHERS,
];

const SERVED_COLUMNS: &[Column] = &[
    column("served", "connections served", 0, Show::Median),
    column("unserved", "never served", 0, Show::Median),
    column("least", "least per connection", 0, Show::Median),
    column("middle", "median", 0, Show::Median),
    column("most", "most", 0, Show::Median),
    RATE,
    column("longest", "longest wait ms", 1, Show::Median),
    OTHERS,
];

/// Every server that a claim needs.
pub fn servers() -> Vec<Server> {
    const NEEDED: &[&str] = &[
        REFERENCE,
        "ours",
        "framework",
        "may_server",
        "feather_server",
        "express",
        "nginx",
        "echo_libuv",
        "echo_asio",
        "echo_node",
    ];
    let known = Server::all().into_iter().filter(|server| {
        NEEDED.contains(&server.name.as_str()) || ECHO_SERVERS.contains(&server.name.as_str())
    });
    known.chain([Server::express_alone(), Server::flood()]).collect()
}

/// The settings, tools and servers with which all claims are measured.
struct Bench<'a> {
    args: &'a Args,
    tools: &'a Tools,
    built: &'a [Built<'a>],
}

/// A row of a table: a generator, the server that it asks, and the load.
struct Ask<'a> {
    label: String,
    program: &'a Program,
    generator: Generator,
    job: Job,
}

/// Measures each claim, and prints it with the facts that its figures hide.
pub fn measure(
    args: &Args,
    tools: &Tools,
    built: &[Built<'_>],
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let bench = Bench { args, tools, built };
    printed.add(&format!("\n{}\n", texts::PREFACE))?;
    printed.add(&bench.may_echo()?)?;
    printed.add(&bench.gurl())?;
    printed.add(&bench.feather())?;
    printed.add(&bench.mioco_http())?;
    printed.add(&bench.mioco_echo())?;
    printed.add(&bench.magio())
}

impl Bench<'_> {
    fn may_echo(&self) -> io::Result<String> {
        let seconds = self.seconds(10);
        let job = Job::echo(100, 100, 8);
        let asks = self.asks(ECHO_SERVERS, Generator::Gust, &job);
        let rows = self.in_turns("may_echo", &asks, |ask| self.with_echo_lines(ask, seconds));
        let table = report::table(ECHO_COLUMNS, &rows, ECHO_REFERENCE);
        let mut lines = String::from("\nWhat the client of the last round printed:\n\n```text\n");
        for row in &rows {
            lines.push_str(&format!(
                "{}\n{}\n",
                row.label,
                row.last_text("lines").unwrap_or("nothing")
            ));
        }
        lines.truncate(lines.trim_end().len());
        lines.push_str("\n```\n");
        let command = gust::command_line(&job, seconds).replace(" tcp://", " --format echo tcp://");
        Ok(section(texts::MAY_ECHO, &[command], &format!("{table}{lines}")))
    }

    fn gurl(&self) -> String {
        let requests = self.requests(1_000_000);
        let one = Job::get(TARGET, 21, 1).requests(requests);
        let closing = one.clone().sending(Form::Closing);
        let loads = [
            ("gust", Generator::Gust, &one),
            ("ab -k", Generator::Ab, &one),
            ("ab", Generator::Ab, &closing),
            ("gust --no-keepalive", Generator::Gust, &closing),
        ];
        let mut asks = Vec::new();
        for server in ["nginx", "ours"] {
            for (name, generator, job) in loads {
                asks.extend(self.ask(&format!("{name}, {server}"), server, generator, job));
            }
        }
        let rows = self.in_turns("gurl", &asks, |ask| self.load(ask, 0));
        let table = report::table_of("client and server", LOAD_COLUMNS, &rows, "ab, nginx");
        section(texts::GURL, &commands(&asks, 0), &table)
    }

    fn feather(&self) -> String {
        let seconds = self.seconds(5);
        let servers = ["ours", "framework", "feather_server", "express_alone", "express"];
        let job = Job::get(TARGET, 400, 10);
        let asks = self.asks(&servers, Generator::Wrk, &job);
        let rows = self.in_turns("feather", &asks, |ask| self.load(ask, seconds));
        let first = report::table(LOAD_COLUMNS, &rows, "express_alone");
        let rows = self.in_turns("feather_served", &asks, |ask| {
            fair::measure_program(ask.program, self.tools, &job, seconds)
        });
        let second = report::table(SERVED_COLUMNS, &rows, "express_alone");
        let served = gust::command_line(&job, seconds);
        let tables = format!(
            "{first}\nHow many of the 400 connections were served, by `{served}`:\n\n{second}"
        );
        section(texts::FEATHER, &commands(&asks, seconds), &tables)
    }

    fn mioco_http(&self) -> String {
        let seconds = self.seconds(10);
        let one = Job::get(TARGET, 100, 8);
        let pipelined = one.clone().sending(Form::Pipelined(PIPELINE_DEPTH));
        let mut asks: Vec<Ask<'_>> =
            self.ask(FLOODED, "flood", Generator::Wrk, &one).into_iter().collect();
        asks.extend(self.ask("flood, asked by gust", "flood", Generator::Gust, &one));
        asks.extend(self.asks(&["ours", "may_server", REFERENCE], Generator::Wrk, &one));
        for server in ["ours", "may_server", REFERENCE] {
            let label = format!("{server} (pipelined)");
            asks.extend(self.ask(&label, server, Generator::Wrk, &pipelined));
        }
        let rows = self.in_turns("mioco_http", &asks, |ask| match ask.label.as_str() {
            FLOODED => self.flooded(ask, seconds),
            _ => self.load(ask, seconds),
        });
        let table = report::table(LOAD_COLUMNS, &rows, REFERENCE);
        section(texts::MIOCO_HTTP, &commands(&asks, seconds), &table)
    }

    fn mioco_echo(&self) -> String {
        let seconds = self.seconds(10);
        let large = large().requests(self.requests(6_400_000));
        let asks = self.asks(ECHO_SERVERS, Generator::Gust, &large);
        let rows = self.in_turns("mioco_echo", &asks, |ask| self.load(ask, seconds));
        let mut shown = commands(&asks, seconds);
        let first = report::table(ECHO_COLUMNS, &rows, ECHO_REFERENCE);
        let asks = self.asks(ECHO_SERVERS, Generator::Gust, &Job::echo(26, 128, 1));
        let rows = self.in_turns("mioco_echo_short", &asks, |ask| self.load(ask, seconds));
        shown.extend(commands(&asks, seconds));
        let second = report::table(ECHO_COLUMNS, &rows, ECHO_REFERENCE);
        let tables = format!("{first}\n128 connections and 26 bytes:\n\n{second}");
        section(texts::MIOCO_ECHO, &shown, &tables)
    }

    fn magio(&self) -> String {
        let requests = self.requests(1_000_000);
        let servers = [
            ECHO_REFERENCE,
            "echo_ours",
            "echo_tokio",
            "echo_may",
            "echo_libuv",
            "echo_asio",
            "echo_node",
        ];
        let asks = self.asks(&servers, Generator::Ab, &Job::get("/", 1_000, 1).requests(requests));
        let rows = self
            .in_turns("magio", &asks, |ask| ab_on_one_thread(ask.program, self.tools, requests));
        let table = report::table(AB_COLUMNS, &rows, ECHO_REFERENCE);
        section(texts::MAGIO, &commands(&asks, 0), &table)
    }

    /// The duration of the original measurement, unless the command line has another one.
    fn seconds(&self, original: u64) -> u64 {
        self.args.seconds.unwrap_or(original)
    }

    fn requests(&self, original: u64) -> u64 {
        self.args.requests.unwrap_or(original)
    }

    /// A row, if the server could be built.
    fn ask(&self, label: &str, server: &str, generator: Generator, job: &Job) -> Option<Ask<'_>> {
        let built = self.built.iter().find(|built| built.server.name == server)?;
        Some(Ask { label: label.to_owned(), program: &built.program, generator, job: job.clone() })
    }

    fn asks(&self, servers: &[&str], generator: Generator, job: &Job) -> Vec<Ask<'_>> {
        servers.iter().filter_map(|server| self.ask(server, server, generator, job)).collect()
    }

    fn in_turns(
        &self,
        name: &str,
        asks: &[Ask<'_>],
        one: impl Fn(&Ask<'_>) -> io::Result<Figures>,
    ) -> Vec<Row> {
        let rows =
            asks.iter().map(|ask| Row::new(&ask.label, Server::is_ours(&ask.label))).collect();
        let turns = Turns { name, rounds: self.args.rounds, repeats_max: self.args.repeats };
        turns.measure(rows, |index| one(&asks[index]))
    }

    fn load(&self, ask: &Ask<'_>, seconds: u64) -> io::Result<Figures> {
        Self::loaded(ask, |server| {
            generator::run_with(ask.generator, server, self.tools, &ask.job, seconds)
        })
    }

    /// Pauses the server when the time is over. While there is more to read, wrk reads on and does
    /// not look at its clock. Against a server that sends faster than wrk reads, it would end by
    /// chance, or never.
    fn flooded(&self, ask: &Ask<'_>, seconds: u64) -> io::Result<Figures> {
        Self::loaded(ask, |server| {
            let wrk = ask.generator.start(server, self.tools, &ask.job, seconds)?;
            thread::sleep(Duration::from_secs(seconds));
            server.pause();
            let ended = wrk.finish();
            server.go_on();
            let ended = ended?;
            Ok((ask.generator.read(&ended)?, ended))
        })
    }

    fn loaded(
        ask: &Ask<'_>,
        work: impl FnOnce(&Running) -> io::Result<(Rates, Ended)>,
    ) -> io::Result<Figures> {
        let ((rates, ended), spent) = observe(Running::start(ask.program)?, work)?;
        let client = ended.cpu.total().as_secs_f64() * 1e6 / rates.requests.max(1) as f64;
        Ok(figures(per_request(&spent, rates.requests).number("client", client), rates))
    }

    /// Runs the load, and keeps the lines that the client of an echo server prints.
    fn with_echo_lines(&self, ask: &Ask<'_>, seconds: u64) -> io::Result<Figures> {
        let server = Running::start(ask.program)?;
        let saved = output_folder().map_err(io::Error::other)?.join("echo.json");
        let ((rates, lines), spent) = observe(server, |server| {
            let mut command = guarded(&self.tools.gust, "KILL");
            command
                .args(gust::options(&ask.job, seconds))
                .args(["--quiet", "--format", "echo", "--save"]);
            command.arg(&saved).arg(ask.job.url(server.address));
            let ended = Child::spawn(&mut command, ask.job.within(seconds))?.finish()?;
            let rates = gust::parse(&fs::read_to_string(&saved)?).ok_or_else(|| {
                io::Error::other(format!("gust kept nothing: {}", ended.last_words()))
            })?;
            Ok((rates, without_address(&ended.output)))
        })?;
        fs::remove_file(&saved)?;
        Ok(figures(per_request(&spent, rates.requests).text("lines", lines), rates))
    }
}

fn figures(figures: Figures, rates: Rates) -> Figures {
    let figures =
        figures.number("rate", rates.per_second).number("p50", rates.p50).number("p99", rates.p99);
    figures.problems(rates.problems)
}

/// Leaves out the first line, because it names a random port.
fn without_address(lines: &str) -> String {
    lines
        .lines()
        .filter(|line| !line.starts_with("Benchmarking:") && !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The different command lines, in order.
fn commands(asks: &[Ask<'_>], seconds: u64) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for ask in asks {
        let command = ask.generator.command_line(&ask.job, seconds);
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands
}

fn section(claim: Claim, commands: &[String], tables: &str) -> String {
    let commands: String = commands.iter().map(|command| format!("- `{command}`\n")).collect();
    format!(
        "\n## {}\n\n**Then:** {}\n\n**Today:**\n\n{commands}\n{tables}\n**What the original \
         figure hides:** {}\n",
        claim.title, claim.then, claim.hides
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_says_then_today_and_what_is_hidden() {
        let claim = Claim { title: "A against B", then: "1 and 2.", hides: "Much." };
        assert_eq!(
            section(claim, &["wrk -t1 /".to_owned()], "| table |\n"),
            "\n## A against B\n\n**Then:** 1 and 2.\n\n**Today:**\n\n- `wrk -t1 /`\n\n| table |\n\n\
             **What the original figure hides:** Much.\n"
        );
    }

    #[test]
    fn lines_without_an_address_are_the_same_in_every_run() {
        assert_eq!(
            without_address("Benchmarking: 127.0.0.1:5\n2 clients\n\nSpeed: 1\n"),
            "2 clients\nSpeed: 1"
        );
    }

    #[test]
    fn every_server_of_a_claim_is_known() {
        let names: Vec<String> = servers().into_iter().map(|server| server.name).collect();
        for name in ["flood", "express_alone", "echo_ours", "nginx", "raw_httparse"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }
}
