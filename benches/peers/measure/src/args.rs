//! What was typed.

use std::path::PathBuf;

use crate::generator::Generator;
use crate::scenario::{ALL, Scenario};
use crate::server::Server;

pub const HELP: &str = "\
Measures the peers and ours in one run, in turns, and prints Markdown.

cargo run --release -p measure -- [options]

  --scenarios a,b   only these (--list names them)
  --servers x,y     only these; name=path/to/binary adds one that was built before and has our routes
  --rounds N        how often each server is measured in turn (3)
  --seconds S       how long each load lasts (5)
  --repeats N       how often a round is run again in which others used the machine (2)
  --with gust|wrk   who makes the loads (gust)
  --markdown FILE   appends the report to this file too
  --docs            writes the report between the markers of docs/benchmarks.md, and its charts into docs/charts/
  --list            names the scenarios and servers
";

/// What will be measured.
#[derive(Debug)]
pub struct Args {
    pub scenarios: Vec<&'static Scenario>,
    pub servers: Vec<Server>,
    pub rounds: usize,
    pub seconds: u64,
    pub repeats: usize,
    pub generator: Generator,
    pub markdown: Option<PathBuf>,
    pub docs: bool,
}

/// What was typed: work, or a wish to read.
#[derive(Debug)]
pub enum Typed {
    Measure(Args),
    Help,
    List,
}

pub fn parse(words: impl Iterator<Item = String>) -> Result<Typed, String> {
    let mut args = Args {
        scenarios: ALL.iter().collect(),
        servers: Server::all(),
        rounds: 3,
        seconds: 5,
        repeats: 2,
        generator: Generator::Gust,
        markdown: None,
        docs: false,
    };
    let mut words = words;
    while let Some(option) = words.next() {
        match option.as_str() {
            "--help" | "-h" => return Ok(Typed::Help),
            "--list" => return Ok(Typed::List),
            "--docs" => {
                args.docs = true;
                continue;
            }
            _ => {}
        }
        let value = words.next().ok_or_else(|| format!("{option} needs a value; see --help"))?;
        match option.as_str() {
            "--scenarios" => args.scenarios = each(&value, scenario)?,
            "--servers" => args.servers = each(&value, Server::named)?,
            "--rounds" => args.rounds = positive(&option, &value)?,
            "--seconds" => args.seconds = positive(&option, &value)? as u64,
            "--repeats" => args.repeats = number(&option, &value)?,
            "--with" => args.generator = generator(&value)?,
            "--markdown" => args.markdown = Some(PathBuf::from(value)),
            _ => return Err(format!("there is no option {option}; see --help")),
        }
    }
    Ok(Typed::Measure(args))
}

fn each<T>(list: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    list.split(',').map(one).collect()
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    ALL.iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| format!("no scenario is called {name}; see --list"))
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
        let args =
            typed("--scenarios json,sleep --servers ours,nginx --rounds 5 --repeats 0 --with wrk --docs")
                .unwrap();
        let scenarios: Vec<_> = args.scenarios.iter().map(|scenario| scenario.name).collect();
        assert_eq!(scenarios, ["json", "sleep"]);
        assert_eq!(
            args.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(),
            ["ours", "nginx"]
        );
        assert_eq!((args.rounds, args.repeats, args.generator, args.docs), (5, 0, Generator::Wrk, true));
    }

    #[test]
    fn mistakes_are_explained() {
        for (words, expected) in [
            ("--rounds 0", "--rounds needs a number above 0"),
            ("--rounds", "--rounds needs a value; see --help"),
            ("--with own", "--with needs gust or wrk, not own"),
            ("--scenarios x", "no scenario is called x; see --list"),
            ("--loud yes", "there is no option --loud; see --help"),
        ] {
            assert_eq!(typed(words).unwrap_err(), expected);
        }
    }

    fn typed(words: &str) -> Result<Args, String> {
        match parse(words.split(' ').map(str::to_owned))? {
            Typed::Measure(args) => Ok(args),
            Typed::Help | Typed::List => Err("no measurement".to_owned()),
        }
    }
}
