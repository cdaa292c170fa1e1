//! What the figures were measured on, and with.

use std::fs;
use std::process::Command;

use crate::server::{main_folder, peers_folder};

/// The packages whose versions say what the peers are.
const NAMED_PACKAGES: &[&str] = &["may_minihttp", "may", "actix-web", "axum", "hyper", "tokio", "httparse"];

/// A Markdown list.
pub fn describe() -> String {
    let cpu = first_value("/proc/cpuinfo", "model name");
    let memory = first_value("/proc/meminfo", "MemTotal");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = said("uname", &["-sr"]);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("").to_owned();
    let commit = said("git", &["-C", &main_folder().display().to_string(), "rev-parse", "--short", "HEAD"]);
    let date = said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]);
    // wrk prints its version among its help, and then fails.
    let wrk = said("wrk", &["-v"]);
    let wrk = wrk.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let tools =
        [said("rustc", &["--version"]), wrk, said("strace", &["-V"]), said("valgrind", &["--version"])];
    let tools = tools.map(|tool| tool.lines().next().unwrap_or("").to_owned()).join(", ");
    format!(
        "- {date}, our commit {commit}\n- {cpu}, {cores} cores (shared with the load generator), {memory}, \
         {kernel}, load before the start {load}\n- {tools}\n- peers: {}\n",
        peer_versions()
    )
}

fn peer_versions() -> String {
    let lock = fs::read_to_string(peers_folder().join("Cargo.lock")).unwrap_or_default();
    let version = |name: &&str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", rest.split('"').next()?))
    };
    NAMED_PACKAGES.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}

fn first_value(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
    value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// The first words of a tool, or that it is not there.
fn said(tool: &str, arguments: &[&str]) -> String {
    match Command::new(tool).args(arguments).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => format!("no {tool}"),
    }
}
