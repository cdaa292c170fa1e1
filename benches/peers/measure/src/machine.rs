//! The machine and the versions of the programs that the figures are from.

use std::fs;
use std::process::Command;

use crate::build::{main_folder, peers_folder};
use crate::generator::{Generator, Tools};
use crate::rounds::Built;

/// A Markdown list.
pub fn describe(built: &[Built<'_>], generator: Generator) -> String {
    let cpu = first_value("/proc/cpuinfo", "model name");
    let memory = first_value("/proc/meminfo", "MemTotal");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = said("uname", &["-sr"]);
    let load_average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load_average = load_average.split(' ').next().unwrap_or("").to_owned();
    let commit =
        said("git", &["-C", &main_folder().display().to_string(), "rev-parse", "--short", "HEAD"]);
    let date = said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]);
    let load = match generator {
        Generator::Gust | Generator::Ab | Generator::Oha => "gust of our commit".to_owned(),
        // wrk prints its version among its help, and then fails.
        Generator::Wrk => {
            said("wrk", &["-v"]).split_whitespace().take(2).collect::<Vec<_>>().join(" ")
        }
    };
    let tools = [
        said("rustc", &["--version"]),
        load,
        said("strace", &["-V"]),
        said("valgrind", &["--version"]),
    ];
    let tools = tools.map(|tool| tool.lines().next().unwrap_or("").to_owned()).join(", ");
    let peers = peer_versions(built);
    let peers = if peers.is_empty() { String::new() } else { format!("- peers: {peers}\n") };
    format!(
        "- {date}, our commit {commit}\n- {cpu}, {cores} cores (shared with the load generator), \
         {memory}, {kernel}, load before the start {load_average}\n- {tools}\n{peers}"
    )
}

/// The versions of the other load generators.
pub fn generators(tools: &Tools) -> String {
    let oha = tools
        .oha
        .as_ref()
        .map_or(String::new(), |oha| said(&oha.display().to_string(), &["--version"]));
    let ab = said("ab", &["-V"]);
    let ab = ab.lines().next().unwrap_or("").replace("This is ", "").replace(" <$Revision$>", "");
    let wrk = said("wrk", &["-v"]).split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let all = [wrk, ab, oha].into_iter().filter(|version| !version.is_empty()).collect::<Vec<_>>();
    format!("- clients: {}\n", all.join(", "))
}

fn peer_versions(built: &[Built<'_>]) -> String {
    let lock = fs::read_to_string(peers_folder().join("Cargo.lock")).unwrap_or_default();
    let mut versions: Vec<String> = Vec::new();
    for Built { server, program } in built {
        let named = server.versions.iter().filter_map(|name| locked_version(&lock, name));
        for version in named.chain(program.version.clone()) {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
    }
    versions.join(", ")
}

fn locked_version(lock: &str, name: &str) -> Option<String> {
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(format!("{name} {}", rest.split('"').next()?))
}

fn first_value(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value =
        text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
    value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// The output of a tool, or a text that says that it is not installed.
fn said(tool: &str, arguments: &[&str]) -> String {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => format!("no {tool}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_whole_name() {
        let lock = "name = \"may_minihttp\"\nversion = \"0.1.11\"\n\nname = \"may\"\nversion = \
                    \"0.3.51\"\n";
        assert_eq!(locked_version(lock, "may").as_deref(), Some("may 0.3.51"));
        assert_eq!(locked_version(lock, "tokio"), None);
    }
}
