//! The public surface is a text file that is reviewed like code. After an intended change:
//! `UPDATE=1 cargo test -p filoplume-tidy --test public_api`.
//!
//! Needs a nightly toolchain. Without one the tests report that they are skipped.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use filoplume_tidy::{examples, public_api};

/// The packages with a public surface.
const PACKAGES: [&str; 3] = ["filoplume-http1", "filoplume-runtime", "filoplume"];

#[test]
fn public_surface_of_http1() {
    check("filoplume-http1");
}

#[test]
fn public_surface_of_runtime() {
    check("filoplume-runtime");
}

#[test]
fn public_surface_of_the_framework() {
    check("filoplume");
}

/// Items that need no example: crate, path and reason.
const WITHOUT_EXAMPLE: [(&str, &str, &str); 0] = [];

#[test]
fn every_public_type_has_an_example() {
    let mut wrong = Vec::new();
    for package in PACKAGES {
        let Some(json) = rustdoc_json(package) else {
            skip::without("nightly");
            return;
        };
        let missing = match examples::missing(&json) {
            Ok(missing) => missing,
            Err(version) => {
                skip_format(version);
                return;
            }
        };
        let excused: Vec<_> = WITHOUT_EXAMPLE
            .iter()
            .filter(|(of, ..)| *of == package)
            .map(|(_, name, _)| *name)
            .collect();
        let unexcused = missing.iter().filter(|name| !excused.contains(&name.as_str()));
        wrong.extend(unexcused.map(|name| format!("{package}: {name} has no example")));
        let needless = excused.iter().filter(|name| !missing.iter().any(|other| other == *name));
        wrong.extend(needless.map(|name| {
            format!("{package}: {name} is in the list, but has an example or does not exist")
        }));
    }
    assert!(
        wrong.is_empty(),
        "add a block of code to the docs of each item, or a line to the list:\n{}",
        wrong.join("\n")
    );
}

fn check(package: &str) {
    let Some(json) = rustdoc_json(package) else {
        skip::without("nightly");
        return;
    };
    let lines = match public_api::lines(&json) {
        Ok(lines) => lines,
        Err(version) => {
            skip_format(version);
            return;
        }
    };
    let found = lines.join("\n") + "\n";
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("public-api").join(format!("{package}.txt"));
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, found).unwrap();
        return;
    }
    let agreed = fs::read_to_string(&path).unwrap_or_default();
    let is_in = |text: &str, line: &str| text.lines().any(|other| other == line);
    let gone = agreed.lines().filter(|line| !is_in(&found, line)).map(|line| format!("- {line}"));
    let new = found.lines().filter(|line| !is_in(&agreed, line)).map(|line| format!("+ {line}"));
    let changes: Vec<_> = gone.chain(new).collect();
    assert!(
        changes.is_empty(),
        "the public surface of {package} has changed:\n{}\nif that is intended: UPDATE=1 cargo \
         test -p filoplume-tidy",
        changes.join("\n")
    );
}

fn skip_format(version: u64) {
    skip::because(&format!(
        "rustdoc's JSON has format {version}, {} is read",
        public_api::FORMAT_VERSION
    ));
}

/// Returns `None` if there is no nightly.
fn rustdoc_json(package: &str) -> Option<serde_json::Value> {
    // The tests share one call: the features of a dependency differ from package to package, so
    // with a call for each package cargo would check some dependencies again.
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(document).as_ref()?;
    let json = fs::read(folder.join(package.replace('-', "_") + ".json")).unwrap();
    Some(serde_json::from_slice(&json).unwrap())
}

/// Documents the packages and returns the folder of the JSON, or `None` if there is no nightly.
fn document() -> Option<PathBuf> {
    let is_there = nightly().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return None;
    }
    // A separate directory, because the outer cargo's may be locked.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let output = nightly()
        .args(["doc", "--lib", "--no-deps", "--all-features"])
        .args(PACKAGES.map(|package| format!("--package={package}")))
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTDOCFLAGS", "-Zunstable-options --output-format json")
        // Rustdoc reads only Rust, so the C libraries of dependencies are not compiled. That would
        // take longer than the rest.
        .env("CC", "true")
        .env("AR", "true")
        .output()
        .expect("rustup ran a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target.join("doc"))
}

/// Returns cargo of nightly, without the settings of the outer cargo.
fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root());
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
