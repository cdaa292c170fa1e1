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
  --with wrk|own    who makes the load (wrk)
  --markdown FILE   appends the report to this file too
  --list            names the scenarios and servers
";

/// What will be measured.
#[derive(Debug)]
pub struct Args {
    pub scenarios: Vec<&'static Scenario>,
    pub servers: Vec<Server>,
    pub rounds: usize,
    pub seconds: u64,
    pub generator: Generator,
    pub markdown: Option<PathBuf>,
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
        generator: Generator::Wrk,
        markdown: None,
    };
    let mut words = words;
    while let Some(option) = words.next() {
        match option.as_str() {
            "--help" | "-h" => return Ok(Typed::Help),
            "--list" => return Ok(Typed::List),
            _ => {}
        }
        let value = words.next().ok_or_else(|| format!("{option} needs a value; see --help"))?;
        match option.as_str() {
            "--scenarios" => args.scenarios = each(&value, scenario)?,
            "--servers" => args.servers = each(&value, Server::named)?,
            "--rounds" => args.rounds = positive(&option, &value)?,
            "--seconds" => args.seconds = positive(&option, &value)? as u64,
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
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option} needs a number above 0, not {value}")),
    }
}

fn generator(name: &str) -> Result<Generator, String> {
    match name {
        "wrk" => Ok(Generator::Wrk),
        "own" => Ok(Generator::Own),
        _ => Err(format!("--with needs wrk or own, not {name}")),
    }
}
