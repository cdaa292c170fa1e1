//! Contents of a gigabyte, in both directions, plain and over TLS. The client is gust on one
//! connection, which makes one transfer after the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::tls::{Certificate, agreed};
use super::{same_tls, start_gust};
use crate::args::Args;
use crate::build::{Program, output_folder};
use crate::generator::{Generator, Tools};
use crate::observe::observe;
use crate::printed::Printed;
use crate::proc::peak_of_all_kib;
use crate::report::{self, Column, Figures, OTHERS_KEY, Row, Show};
use crate::rounds::Turns;
use crate::running::Running;
use crate::scenario::{OTHERS, THREADS, column};
use crate::server::Server;

pub const NAME: &str = "transfers";

/// The length of a content.
const BYTES: u64 = 1 << 30;

/// The number of contents per run, one after the other. CPU time is counted in ticks of 10 ms, so
/// one content would be too short.
const TRANSFERS: u64 = 4;

/// The deadline of one transfer.
const WITHIN: Duration = Duration::from_secs(120);

/// The memory is the peak of the server's life, summed over its processes.
const COLUMNS: &[Column] = &[
    column("rate", "MiB/s", 0, Show::Compared),
    column("cpu", "CPU s/GiB", 3, Show::Compared),
    column("user", "of it user s/GiB", 3, Show::Median),
    column("peak", "peak RSS MiB", 1, Show::Median),
    THREADS,
    column("tls", "TLS", 0, Show::Text),
    OTHERS,
];

/// A direction in which a gigabyte is sent.
struct Way {
    name: &'static str,
    asks: &'static str,
    /// The labels, the servers, and their paths.
    who: &'static [(&'static str, &'static str, &'static str)],
    is_upload: bool,
}

const WAYS: [Way; 2] = [
    Way {
        name: "download",
        asks: "A file of 1 GiB, which is in the system's cache, is sent.",
        who: &[
            ("ours", "live_ours", "/file"),
            ("nginx", "live_nginx", "/file"),
            ("ours, by reads", "live_ours", "/file_read"),
        ],
        is_upload: false,
    },
    Way {
        name: "upload",
        asks: "A content of 1 GiB becomes a file in memory (tmpfs) that replaces the one before.",
        who: &[("ours", "live_ours", "/store"), ("nginx", "live_nginx", "/store")],
        is_upload: true,
    },
];

/// The files of a measurement. They are removed when it ends.
struct Files {
    /// The content that is sent.
    sent: PathBuf,
    /// Where uploads are stored: in memory where the system has such a folder.
    stored: PathBuf,
}

impl Files {
    fn make() -> io::Result<Self> {
        let folder = output_folder().map_err(io::Error::other)?;
        let sent = folder.join("live-gigabyte");
        fs::write(&sent, vec![b'f'; usize::try_from(BYTES).map_err(io::Error::other)?])?;
        let memory = Path::new("/dev/shm");
        let stores = if memory.is_dir() { memory } else { &*folder };
        Ok(Self { sent, stored: stores.join("filoplume-live-upload") })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A file that does not exist need not be removed.
        let _ = fs::remove_file(&self.sent);
        let _ = fs::remove_file(&self.stored);
        let _ = fs::remove_dir_all(self.stored.with_extension("parts"));
    }
}

pub fn measure(
    args: &Args,
    tools: &Tools,
    certificate: &Certificate,
    printed: &mut Printed<'_>,
) -> io::Result<()> {
    let files = Files::make()?;
    for (scheme, is_tls) in [("http", false), ("https", true)] {
        for way in &WAYS {
            let programs = programs(way, is_tls.then_some(certificate), &files);
            let name = format!("{scheme}_{}", way.name);
            let rows =
                way.who.iter().map(|(label, server, _)| Row::new(label, *server == "live_ours"));
            let turns = Turns { name: &name, rounds: args.rounds, repeats_max: args.repeats };
            let rows = turns.measure(rows.collect(), |index| {
                let program =
                    programs[index].as_ref().map_err(|error| io::Error::other(error.clone()))?;
                transfer(tools, program, scheme, way, way.who[index].2, &files)
            });
            let rows = same_tls(rows);
            let table = report::table_of("server", COLUMNS, &rows, "nginx");
            let command = format!(
                "- `gust {} {scheme}://ADDRESS{}`",
                options(way, scheme, Path::new("GIBIBYTE")).join(" "),
                way.who[0].2
            );
            printed.add(&format!("\n## {name}\n\n{}\n\n{command}\n\n{table}", way.asks))?;
        }
    }
    Ok(())
}

fn programs(
    way: &Way,
    certificate: Option<&Certificate>,
    files: &Files,
) -> Vec<Result<Program, String>> {
    let program = |&(_, name, _): &(&str, &str, &str)| {
        let server = Server::named(name)?;
        let mut program = Program::of(&server, false)?;
        program.environment = certificate.map(Certificate::environment).unwrap_or_default();
        program.environment.push(("FILE", files.sent.display().to_string()));
        program.environment.push(("STORE", files.stored.display().to_string()));
        Ok(program)
    };
    way.who.iter().map(program).collect()
}

fn options(way: &Way, scheme: &str, sent: &Path) -> Vec<String> {
    let mut options = vec![
        "-c1".to_owned(),
        "-t1".to_owned(),
        format!("-n{TRANSFERS}"),
        format!("--timeout={}s", WITHIN.as_secs()),
        "--expect=2xx".to_owned(),
    ];
    if way.is_upload {
        options.extend(["-XPUT".to_owned(), "-B".to_owned(), sent.display().to_string()]);
    }
    options.extend((scheme == "https").then(|| "--insecure".to_owned()));
    options
}

fn transfer(
    tools: &Tools,
    program: &Program,
    scheme: &str,
    way: &Way,
    path: &str,
    files: &Files,
) -> io::Result<Figures> {
    // Without an earlier file, the first upload writes to new memory. Each later one replaces a
    // file.
    let _ = fs::remove_file(&files.stored);
    let server = Running::start(program)?;
    let tls = if scheme == "https" { agreed(server.address)? } else { String::new() };
    let ((rates, peak), spent) = observe(server, |server| {
        let options = options(way, scheme, &files.sent);
        let within = WITHIN * u32::try_from(TRANSFERS).unwrap_or(u32::MAX);
        let child = start_gust(tools, &options, scheme, path, server, within)?;
        let rates = Generator::Gust.read(&child.finish()?)?;
        Ok((rates, peak_of_all_kib(server.pid())))
    })?;
    if rates.requests != TRANSFERS {
        let error = format!("{} of {TRANSFERS} transfers: {:?}", rates.requests, rates.problems);
        return Err(io::Error::other(error));
    }
    if way.is_upload && fs::metadata(&files.stored)?.len() != BYTES {
        return Err(io::Error::other("the file that was stored is not complete"));
    }
    let gibibytes = (TRANSFERS * BYTES) as f64 / f64::from(1 << 30);
    let figures = Figures::default()
        .number("rate", rates.per_second * BYTES as f64 / f64::from(1 << 20))
        .number("cpu", spent.cpu.total().as_secs_f64() / gibibytes)
        .number("user", spent.cpu.user.as_secs_f64() / gibibytes)
        .number("peak", peak as f64 / 1024.0)
        .number("threads", spent.size.threads as f64)
        .number(OTHERS_KEY, spent.others)
        .text("tls", tls);
    Ok(figures.problems(rates.problems))
}
