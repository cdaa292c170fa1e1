//! How each server, and gust, is built. A server that cannot be built is skipped, and a line says
//! why.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::server::{Launch, Server, Source, Speech};

/// A server that can be started.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: &'static [&'static str],
    pub speech: Speech,
    pub launch: Launch,
    pub threads: usize,
    /// Environment variables of the server, in addition to those of `measure`.
    pub environment: Vec<(&'static str, String)>,
    /// Whether the program is a script that starts other processes. It gets SIGTERM, so that it can
    /// end them.
    pub is_script: bool,
    /// A build of the same code that keeps its names. It is the same file if the build keeps them
    /// anyway.
    pub profiling: PathBuf,
    /// The version, for servers that are not in the lock file.
    pub version: Option<String>,
}

impl Program {
    /// Builds the server.
    pub fn of(server: &Server, with_profiling: bool) -> Result<Self, String> {
        let path = build(server, "release")?;
        let wants_profiling = with_profiling && matches!(server.source, Source::Example { .. });
        let profiling = if wants_profiling { build(server, "profiling")? } else { path.clone() };
        let version = fs::read_to_string(path.with_file_name("version")).ok();
        let version = version.filter(|_| matches!(server.source, Source::Foreign(_)));
        let start = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            is_script: start.starts_with(b"#!"),
            path,
            arguments: server.arguments,
            speech: server.speech,
            launch: server.launch,
            threads: server.threads_max,
            environment: Vec::new(),
            profiling,
            version: version.map(|version| version.trim().to_owned()),
        })
    }
}

impl Program {
    /// The same program with one thread.
    pub fn on_one_thread(&self) -> Self {
        Self { threads: 1, ..self.clone() }
    }

    /// The arguments that make the server listen at this address.
    pub fn command_line(&self, address: SocketAddr) -> Vec<String> {
        let mut words = match self.launch {
            Launch::Address => vec![address.to_string()],
            Launch::AddressThreads => vec![address.to_string(), self.threads.to_string()],
            Launch::Options => ["-p", &address.port().to_string(), "-t", &self.threads.to_string()]
                .map(str::to_owned)
                .to_vec(),
        };
        words.extend(self.arguments.iter().map(|argument| (*argument).to_owned()));
        words
    }
}

/// The workspace this crate is in.
pub fn peers_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in the workspace of the peers")
}

/// The main workspace.
pub fn main_folder() -> &'static Path {
    peers_folder().ancestors().nth(2).expect("the peers are in benches/ of the main workspace")
}

/// A folder for files that a measurement makes. It is below the target folder, so that the sources
/// stay clean.
pub fn output_folder() -> Result<PathBuf, String> {
    let executable = env::current_exe().map_err(|error| error.to_string())?;
    let target = executable.ancestors().nth(2).ok_or("measure has no target folder")?;
    let folder = target.join("peers");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Builds our load generator.
pub fn gust() -> Result<PathBuf, String> {
    eprintln!("building gust");
    cargo(main_folder(), &["--release", "--package", "gust"])
}

fn build(server: &Server, profile: &str) -> Result<PathBuf, String> {
    if let Source::Binary(path) = &server.source {
        return Ok(path.clone());
    }
    eprintln!("building {}", server.name);
    match &server.source {
        Source::Package(package) => cargo(peers_folder(), &["--release", "--package", package]),
        Source::Example { name, .. } => {
            cargo(main_folder(), &["--profile", profile, "--package", name])
        }
        Source::Foreign(folder) => script(folder, foreign_name(server)),
        Source::Binary(path) => Ok(path.clone()),
    }
}

/// The name that `build.sh` gets: two servers that differ only in their arguments are one program.
fn foreign_name(server: &Server) -> &str {
    match &server.source {
        Source::Foreign(folder) if !server.arguments.is_empty() => folder,
        _ => &server.name,
    }
}

fn cargo(folder: &Path, arguments: &[&str]) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo
        .arg("build")
        .arg("--message-format=json-render-diagnostics")
        .args(arguments)
        .current_dir(folder);
    let output =
        cargo.stderr(Stdio::piped()).output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let error =
            said.lines().find(|line| line.starts_with("error")).unwrap_or("cargo build failed");
        return Err(error.to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    });
    executable.ok_or_else(|| "cargo named no executable".to_owned())
}

/// Runs the server's `build.sh`, which leaves `server` and `version` in a folder of its own.
fn script(folder: &str, name: &str) -> Result<PathBuf, String> {
    let output_folder = output_folder()?.join(name);
    fs::create_dir_all(&output_folder).map_err(|error| error.to_string())?;
    let script = peers_folder().join("servers").join(folder).join("build.sh");
    let output = Command::new("sh").arg(script).arg(name).arg(&output_folder).output();
    let output = output.map_err(|error| format!("sh: {error}"))?;
    if output.status.success() {
        return Ok(output_folder.join("server"));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.trim().lines().last().unwrap_or("build.sh failed").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_told_its_address_in_its_own_way() {
        check(Launch::Address, &["counted"], "127.0.0.1:80 counted");
        check(Launch::AddressThreads, &[], "127.0.0.1:80 1");
        check(Launch::Options, &[], "-p 80 -t 1");
    }

    #[track_caller]
    fn check(launch: Launch, arguments: &'static [&'static str], expected: &str) {
        let path = PathBuf::from("server");
        let program = Program {
            profiling: path.clone(),
            path,
            arguments,
            speech: Speech::Http,
            launch,
            threads: 2,
            environment: Vec::new(),
            is_script: false,
            version: None,
        };
        let words = program.on_one_thread().command_line(SocketAddr::from(([127, 0, 0, 1], 80)));
        assert_eq!(words.join(" "), expected);
    }
}
