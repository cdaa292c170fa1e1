//! Counts that need no quiet machine: system calls and instructions of a request.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::{Clients, Question, Until};
use crate::report::{Column, Figures, Show};
use crate::scenario::Run;
use crate::server::Running;
use crate::strace::Strace;

const CONNECTIONS: usize = 64;

/// Asked of each connection before anything is counted: what happens once is not part of a request.
const WARM_UP: u64 = 20;

/// Asked of each connection while system calls are counted.
const TRACED: u64 = 200;

/// Asked of each connection under callgrind, and then twice as many: the difference has no constant part.
const COUNTED: u64 = 100;

pub const SYSCALL_COLUMNS: &[Column] = &[
    Column { key: "calls", title: "system calls/request", digits: 3, show: Show::Compared },
    Column { key: "by name", title: "which", digits: 0, show: Show::Text },
];

pub const INSTRUCTION_COLUMNS: &[Column] =
    &[Column { key: "instructions", title: "instructions/request", digits: 0, show: Show::Compared }];

pub fn syscalls(run: &Run<'_>) -> io::Result<Figures> {
    let server = Running::start(run.binary)?;
    let question = Question::get("/plaintext");
    let mut clients = Clients::connect(server.address, CONNECTIONS)?;
    clients.run(&question, Until::AnsweredEach(WARM_UP), 1)?;
    let strace = Strace::attach(server.pid())?;
    let outcome = clients.run(&question, Until::AnsweredEach(TRACED), 1)?;
    let calls = strace.finish()?;
    let requests = outcome.total() as f64;
    Ok(Figures::default()
        .number("calls", calls.total() as f64 / requests)
        .text("by name", calls.list(requests)))
}

pub fn instructions(run: &Run<'_>, target: &str) -> io::Result<Figures> {
    let folder = std::env::temp_dir().join(format!("measure-callgrind-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = count_instructions(run.binary, &folder, target);
    fs::remove_dir_all(&folder)?;
    Ok(Figures::default().number("instructions", result?))
}

fn count_instructions(binary: &Path, folder: &Path, target: &str) -> io::Result<f64> {
    let output = folder.join("out");
    let mut option = OsString::from("--callgrind-out-file=");
    option.push(&output);
    let tool = [OsString::from("valgrind"), OsString::from("--tool=callgrind"), option];
    let server = Running::start_under(&tool, binary)?;
    let question = Question::get(target);
    let mut clients = Clients::connect(server.address, CONNECTIONS)?;
    clients.run(&question, Until::AnsweredEach(WARM_UP), 1)?;
    dump(&server, &output, 1)?;
    clients.run(&question, Until::AnsweredEach(COUNTED), 1)?;
    let once = dump(&server, &output, 2)?;
    clients.run(&question, Until::AnsweredEach(2 * COUNTED), 1)?;
    let twice = dump(&server, &output, 3)?;
    Ok((twice - once) / (COUNTED * CONNECTIONS as u64) as f64)
}

/// Has callgrind write what it counted since the last dump, and reads the sum.
fn dump(server: &Running, output: &Path, part: u32) -> io::Result<f64> {
    let asked = Command::new("vgdb").arg(format!("--pid={}", server.pid())).arg("dump").output()?;
    let mut path = output.as_os_str().to_owned();
    path.push(format!(".{part}"));
    let text = fs::read_to_string(PathBuf::from(path)).map_err(|error| {
        io::Error::other(format!(
            "callgrind wrote nothing: {error} {}",
            String::from_utf8_lossy(&asked.stderr)
        ))
    })?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")));
    line.and_then(|total| total.trim().parse().ok())
        .ok_or_else(|| io::Error::other("callgrind wrote no total"))
}
