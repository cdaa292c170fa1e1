//! The size of a server: the bytes of its binary, and the number of its crates.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::process::Command;

use crate::build::{main_folder, output_folder, peers_folder};
use crate::report::{Column, Figures, Show};
use crate::scenario::Run;
use crate::server::Source;

const BYTES_PER_MIB: f64 = 1024.0 * 1024.0;

pub const COLUMNS: &[Column] = &[
    Column { key: "stripped", title: "stripped MiB", digits: 2, show: Show::Compared },
    Column { key: "as built", title: "as built MiB", digits: 2, show: Show::Median },
    Column { key: "crates", title: "crates in the normal tree", digits: 0, show: Show::Median },
];

pub fn measure(run: &Run<'_>) -> io::Result<Figures> {
    let mut figures = Figures::default();
    if run.program.is_script {
        return Ok(figures.problems(vec!["no binary of its own".to_owned()]));
    }
    figures =
        figures.number("as built", fs::metadata(&run.program.path)?.len() as f64 / BYTES_PER_MIB);
    match stripped(run) {
        Ok(bytes) => figures = figures.number("stripped", bytes as f64 / BYTES_PER_MIB),
        Err(error) => figures = figures.problems(vec![error.to_string()]),
    }
    if let Some(crates) = crates(&run.server.source)? {
        figures = figures.number("crates", crates as f64);
    }
    Ok(figures)
}

fn stripped(run: &Run<'_>) -> io::Result<u64> {
    let copy = output_folder().map_err(io::Error::other)?.join("stripped");
    let output = Command::new("strip").arg("-o").arg(&copy).arg(&run.program.path).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let bytes = fs::metadata(&copy)?.len();
    fs::remove_file(&copy)?;
    Ok(bytes)
}

/// The number of crates that a build of the server's own package compiles. The package itself and
/// crates that only the build needs are left out.
fn crates(source: &Source) -> io::Result<Option<usize>> {
    let (folder, package) = match source {
        Source::Package(package) => (peers_folder(), package),
        Source::Example { package, .. } => (main_folder(), package),
        Source::Foreign(_) | Source::Binary(_) => return Ok(None),
    };
    let mut cargo = Command::new("cargo");
    cargo.args([
        "tree",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "depth",
        "--no-dedupe",
    ]);
    cargo.args(["--format", "{p}"]).current_dir(folder);
    // The example of the framework shows all features.
    if matches!(source, Source::Example { .. }) {
        cargo.arg("--all-features");
    }
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(Some(count_crates(&String::from_utf8_lossy(&output.stdout))))
}

/// The crate that all peers share. Crates that only this one needs are not counted either.
const SHARED: &str = "common";

/// The number of different crates in a tree whose lines start with their depth, without the package
/// itself.
fn count_crates(tree: &str) -> usize {
    let mut crates = BTreeSet::new();
    let mut shared_at = None;
    for line in tree.lines() {
        let digits = line.chars().take_while(char::is_ascii_digit).count();
        let (depth, name) = line.split_at(digits);
        let Ok(depth) = depth.parse::<usize>() else { continue };
        if shared_at.is_some_and(|shared| depth > shared) {
            continue;
        }
        let is_shared = name.split(' ').next() == Some(SHARED);
        shared_at = is_shared.then_some(depth);
        if !is_shared && depth > 0 {
            crates.insert(name);
        }
    }
    crates.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_a_version() {
        assert_eq!(
            count_crates("0peer v0.1.0 (/peer)\n1a v1.0.0\n2b v1.0.0\n1b v1.0.0\n1a v2.0.0\n"),
            3
        );
    }

    #[test]
    fn what_only_the_shared_crate_needs_is_not_counted() {
        let tree = "0peer v0.1.0 (/peer)\n1common v0.1.0 (/common)\n2serde v1.0.0\n3core \
                    v1.0.0\n1a v1.0.0\n2core v1.0.0\n";
        assert_eq!(count_crates(tree), 2);
    }
}
