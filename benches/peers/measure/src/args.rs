//! The arguments of the command line.

use std::path::PathBuf;

use crate::generator::Generator;
use crate::scenario::Scenario;
use crate::scenarios::{GROUPS, STANDARD, all};
use crate::server::Server;

pub const HELP: &str = "\
Measures the peers and ours in one run, in turns, and prints Markdown.

cargo run --release -p measure -- [options]

  --scenarios a,b   only these scenarios and groups of them (standard; --list names them)
  --servers x,y     only these; name=path/to/binary adds one that was built before and has our \
                        routes
  --rounds N        how often each server is measured in turn (3)
  --seconds S       how long each load lasts (5; the claims have their own)
  --requests N      how many requests a load is that is a number of them (1000000; the claims have \
                        their own)
  --repeats N       how often a round is run again in which others used the machine (2)
  --beside-busy     keeps one core busy while servers are measured; no round is run again then
  --with gust|wrk   who makes the loads (gust)
  --markdown FILE   appends the report to this file too
  --docs            writes the report between the markers of its page in docs/benchmarks/, and its \
                        charts into docs/charts/
  --charts          measures nothing, and draws the chart of the README from \
                        docs/benchmarks/waits.md
  --clients         measures load generators instead of servers: gust, wrk, ab and oha, all \
                        against the same servers
  --claims          repeats what others claimed, with the same command lines and their servers
  --live            measures WebSockets, event streams, TLS and contents of a gigabyte
  --only a,b        only these questions of --live
  --oha             installs oha below the target folder, if it is not there, for --clients
  --quick           one round, 1 s, 20000 requests: to see that everything works
  --list            names the scenarios and servers
";

/// What is measured, and how.
#[derive(Debug)]
pub struct Args {
    pub scenarios: Vec<&'static Scenario>,
    pub servers: Vec<Server>,
    pub rounds: usize,
    pub seconds: Option<u64>,
    pub requests: Option<u64>,
    pub repeats: usize,
    pub beside_busy: bool,
    pub generator: Generator,
    pub markdown: Option<PathBuf>,
    pub docs: bool,
    pub mode: Mode,
    pub installs_oha: bool,
    /// The questions of [`Mode::Live`] that are asked; all if it is empty.
    pub only: Vec<String>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Servers, by scenarios.
    Servers,
    /// Load generators.
    Clients,
    /// Comparisons that others published.
    Claims,
    /// Long-lived connections.
    Live,
}

const SECONDS: u64 = 5;
const REQUESTS: u64 = 1_000_000;

impl Args {
    pub fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(SECONDS)
    }

    pub fn requests(&self) -> u64 {
        self.requests.unwrap_or(REQUESTS)
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Typed {
    Measure(Args),
    /// Charts of earlier measurements.
    Charts,
    Help,
    List,
}

pub fn parse(words: impl Iterator<Item = String>) -> Result<Typed, String> {
    let mut args = Args {
        scenarios: STANDARD.iter().collect(),
        servers: Server::all(),
        rounds: 3,
        seconds: None,
        requests: None,
        repeats: 2,
        beside_busy: false,
        generator: Generator::Gust,
        markdown: None,
        docs: false,
        mode: Mode::Servers,
        installs_oha: false,
        only: Vec::new(),
    };
    let mut words = words;
    while let Some(option) = words.next() {
        match option.as_str() {
            "--help" | "-h" => return Ok(Typed::Help),
            "--list" => return Ok(Typed::List),
            "--charts" => return Ok(Typed::Charts),
            _ if is_switch(&option, &mut args) => continue,
            _ => {}
        }
        let value = words.next().ok_or_else(|| format!("{option} needs a value; see --help"))?;
        match option.as_str() {
            "--scenarios" => args.scenarios = each(&value, scenarios)?.concat(),
            "--servers" => args.servers = each(&value, Server::named)?,
            "--rounds" => args.rounds = positive(&option, &value)?,
            "--seconds" => args.seconds = Some(positive(&option, &value)? as u64),
            "--requests" => args.requests = Some(positive(&option, &value)? as u64),
            "--repeats" => args.repeats = number(&option, &value)?,
            "--with" => args.generator = generator(&value)?,
            "--only" => args.only = value.split(',').map(str::to_owned).collect(),
            "--markdown" => args.markdown = Some(PathBuf::from(value)),
            _ => return Err(format!("there is no option {option}; see --help")),
        }
    }
    if args.beside_busy && args.mode != Mode::Servers {
        return Err(
            "--beside-busy is for servers, not for --clients, --claims and --live".to_owned()
        );
    }
    Ok(Typed::Measure(args))
}

/// Applies an option that takes no value. Returns whether it is one.
fn is_switch(option: &str, args: &mut Args) -> bool {
    match option {
        "--docs" => args.docs = true,
        "--beside-busy" => args.beside_busy = true,
        "--clients" => args.mode = Mode::Clients,
        "--claims" => args.mode = Mode::Claims,
        "--live" => args.mode = Mode::Live,
        "--oha" => args.installs_oha = true,
        "--quick" => {
            args.rounds = 1;
            args.repeats = 0;
            args.seconds = Some(1);
            args.requests = Some(20_000);
        }
        _ => return false,
    }
    true
}

fn each<T>(list: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    list.split(',').map(one).collect()
}

/// The scenarios of the group with this name, or else the scenario with this name.
fn scenarios(name: &str) -> Result<Vec<&'static Scenario>, String> {
    if let Some(group) = GROUPS.iter().find(|group| group.name == name) {
        return Ok(group.scenarios.iter().collect());
    }
    match all().find(|scenario| scenario.name == name) {
        Some(scenario) => Ok(vec![scenario]),
        None => Err(format!("no scenario is called {name}; see --list")),
    }
}

fn positive(option: &str, value: &str) -> Result<usize, String> {
    match number(option, value)? {
        0 => Err(format!("{option} needs a number above 0")),
        number => Ok(number),
    }
}

fn number(option: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{option} needs a number, not {value}"))
}

fn generator(name: &str) -> Result<Generator, String> {
    match name {
        "gust" => Ok(Generator::Gust),
        "wrk" => Ok(Generator::Wrk),
        _ => Err(format!("--with needs gust or wrk, not {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_what_is_measured() {
        let args = typed(
            "--scenarios json,sleep --servers ours,nginx --rounds 5 --repeats 0 --with wrk --docs",
        )
        .unwrap();
        let scenarios: Vec<_> = args.scenarios.iter().map(|scenario| scenario.name).collect();
        assert_eq!(scenarios, ["json", "sleep"]);
        assert_eq!(
            args.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(),
            ["ours", "nginx"]
        );
        assert_eq!(
            (args.rounds, args.repeats, args.generator, args.docs),
            (5, 0, Generator::Wrk, true)
        );
    }

    #[test]
    fn a_group_is_all_its_scenarios() {
        let args = typed("--scenarios cpu,mixed_waits").unwrap();
        let scenarios: Vec<_> = args.scenarios.iter().map(|scenario| scenario.name).collect();
        assert_eq!((scenarios.len(), scenarios[0], scenarios[1]), (10, "cpu", "mixed_50us"));
        assert_eq!(typed("--rounds 1").unwrap().scenarios.len(), STANDARD.len());
    }

    #[test]
    fn modes_and_short_runs_are_switches() {
        assert!(typed("--beside-busy --rounds 1").unwrap().beside_busy);
        let args = typed("--claims --quick --rounds 2").unwrap();
        assert_eq!(
            (args.mode, args.rounds, args.seconds(), args.requests()),
            (Mode::Claims, 2, 1, 20_000)
        );
        let args = typed("--requests 5 --clients --oha").unwrap();
        assert_eq!(
            (args.mode, args.seconds, args.requests, args.installs_oha),
            (Mode::Clients, None, Some(5), true)
        );
    }

    #[test]
    fn mistakes_are_explained() {
        for (words, expected) in [
            ("--rounds 0", "--rounds needs a number above 0"),
            ("--rounds", "--rounds needs a value; see --help"),
            ("--with own", "--with needs gust or wrk, not own"),
            ("--scenarios x", "no scenario is called x; see --list"),
            (
                "--claims --beside-busy",
                "--beside-busy is for servers, not for --clients, --claims and --live",
            ),
            ("--loud yes", "there is no option --loud; see --help"),
        ] {
            assert_eq!(typed(words).unwrap_err(), expected);
        }
    }

    fn typed(words: &str) -> Result<Args, String> {
        match parse(words.split(' ').map(str::to_owned))? {
            Typed::Measure(args) => Ok(args),
            Typed::Charts | Typed::Help | Typed::List => Err("no measurement".to_owned()),
        }
    }
}
