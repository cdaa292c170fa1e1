//! Contents of a gigabyte, in both directions, plain and over TLS. The client is curl.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Certificate;
use crate::args::Args;
use crate::build::{Program, output_folder};
use crate::child::Child;
use crate::generator;
use crate::printed::Printed;
use crate::report::{self, Column, Figures, Row, Show};
use crate::rounds::Turns;
use crate::running::{Running, guarded};
use crate::scenario::{MEMORY, OTHERS, OTHERS_KEY, column};
use crate::server::Server;

pub const NAME: &str = "transfers";

/// How much is sent.
const BYTES: u64 = 1 << 30;

const WITHIN: Duration = Duration::from_secs(120);

const COLUMNS: &[Column] = &[
    column("rate", "MiB/s", 0, Show::Compared),
    column("cpu", "CPU s/GiB", 3, Show::Compared),
    MEMORY,
    OTHERS,
];

/// One way of a gigabyte: the name, the path, and whether it is sent to the server.
const WAYS: [(&str, &str, bool); 2] = [("download", "/file", false), ("upload", "/length", true)];

const SERVERS: [(&str, &str); 2] = [("ours", "live_ours"), ("nginx", "live_nginx")];

/// A file that is not in the cache of a disk, but in that of the system, when it is asked for.
fn file(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("live-gigabyte");
    if fs::metadata(&path).map_or(0, |metadata| metadata.len()) != BYTES {
        fs::write(&path, vec![b'f'; usize::try_from(BYTES).map_err(io::Error::other)?])?;
    }
    Ok(path)
}

pub fn measure(
    args: &Args,
    certificate: &Certificate,
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let file = file(&output_folder().map_err(io::Error::other)?)?;
    for (scheme, is_tls) in [("http", false), ("https", true)] {
        let mut programs = Vec::new();
        for (_, name) in SERVERS {
            let server = Server::named(name).map_err(io::Error::other)?;
            let mut program = Program::of(&server, false).map_err(io::Error::other)?;
            program.environment = if is_tls { certificate.environment() } else { Vec::new() };
            program.environment.push(("FILE", file.display().to_string()));
            programs.push(program);
        }
        for (way, path, is_upload) in WAYS {
            let name = format!("{scheme}_{way}");
            let rows = SERVERS.map(|(label, _)| Row::new(label, label == "ours")).into();
            let turns = Turns { name: &name, rounds: args.rounds, repeats_max: args.repeats };
            let rows = turns.measure(rows, |index| {
                let server = Running::start(&programs[index])?;
                transfer(server, scheme, path, is_upload.then_some(&*file))
            });
            let table = report::table_of("server", COLUMNS, &rows, "nginx");
            printed.add(&format!("\n## {name}\n\nA {way} of 1 GiB by curl.\n\n{table}"))?;
        }
    }
    Ok(())
}

fn transfer(
    server: Running,
    scheme: &str,
    path: &str,
    upload: Option<&Path>,
) -> io::Result<Figures> {
    let (took, spent) = generator::observe(server, |server| {
        let url = url(scheme, server.address, path);
        let mut command = guarded(Path::new("curl"), "KILL");
        command.args(["--silent", "--show-error", "--fail", "--insecure", "-o", "/dev/null"]);
        if let Some(file) = upload {
            command.args(["-X", "POST", "-H", "Expect:", "-T"]).arg(file);
        }
        let started = Instant::now();
        let ended = Child::spawn(command.arg(url), WITHIN)?.finish()?;
        if !ended.output.is_empty() || ended.last_words().starts_with("curl:") {
            return Err(io::Error::other(ended.last_words()));
        }
        Ok(started.elapsed())
    })?;
    let gibibytes = BYTES as f64 / f64::from(1 << 30);
    let figures = Figures::default()
        .number("rate", gibibytes * 1024.0 / took.as_secs_f64())
        .number("cpu", spent.cpu.total().as_secs_f64() / gibibytes)
        .number("memory", spent.size.resident_kib as f64 / 1024.0)
        .number(OTHERS_KEY, spent.others);
    Ok(figures)
}

fn url(scheme: &str, address: SocketAddr, path: &str) -> String {
    format!("{scheme}://{address}{path}")
}
