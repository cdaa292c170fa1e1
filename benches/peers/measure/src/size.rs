//! How large a server is: bytes of its binary, and crates that it is made of.

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
    figures = figures.number("as built", fs::metadata(&run.program.path)?.len() as f64 / BYTES_PER_MIB);
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

/// Crates that a build of the server's own package compiles, itself and what only the build needs left out.
fn crates(source: &Source) -> io::Result<Option<usize>> {
    let (folder, package) = match source {
        Source::Package(package) => (peers_folder(), package),
        Source::Example { package, .. } => (main_folder(), package),
        Source::Foreign(_) | Source::Binary(_) => return Ok(None),
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--no-dedupe"]);
    cargo.args(["--format", "{p}"]).current_dir(folder);
    // The example of the framework shows all of it.
    if matches!(source, Source::Example { .. }) {
        cargo.arg("--all-features");
    }
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(Some(count_crates(&String::from_utf8_lossy(&output.stdout), package)))
}

/// Different lines of a tree, but for those of the package and of what all servers here have in common.
fn count_crates(tree: &str, package: &str) -> usize {
    let name = |line: &&str| line.split(' ').next().unwrap_or("").to_owned();
    let mut crates: Vec<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    crates.sort_unstable();
    crates.dedup();
    crates.iter().filter(|line| name(line) != package && name(line) != "common").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_a_version() {
        let tree = "peer v0.1.0 (/peer)\na v1.0.0\nb v1.0.0\na v1.0.0\n\na v2.0.0\ncommon v0.1.0 (/common)\n";
        assert_eq!(count_crates(tree, "peer"), 3);
    }
}
