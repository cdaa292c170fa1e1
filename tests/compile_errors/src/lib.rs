//! Compiles programs that have a mistake, and returns the messages without what differs from
//! machine to machine.
//!
//! The compiler is called directly, with the dependencies that cargo has compiled already.
//! `trybuild` checks all of them again in a folder of its own, which takes longer than the cases.
//! It also stops before code is generated, and some mistakes are found only then.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;

/// What a case may use.
const CRATES: [&str; 3] = ["filoplume", "serde", "serde_json"];

/// Where the cases are, from the root of all packages.
const OWN_FOLDER: &str = "tests/compile_errors/";

/// How messages begin that have a margin of their own.
const BEGINNINGS: [&str; 3] = ["error", "warning", "note: the above error"];

/// rustc with the dependencies of a case.
#[derive(Debug)]
pub struct Compiler {
    /// The program and its first arguments.
    rustc: Vec<OsString>,
    /// `--extern NAME=FILE` for each of [`CRATES`], and the folder with what these use.
    options: Vec<String>,
    output: PathBuf,
}

impl Compiler {
    /// Has cargo compile the dependencies, if that is not done yet, and asks it where they are.
    ///
    /// # Panics
    ///
    /// If they do not compile.
    pub fn find() -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::with(vec![rustc()], &mut Command::new(cargo), &target_folder())
    }

    /// Like [`find`](Self::find), with a toolchain of rustup, such as `1.95.0`. It has a target
    /// folder of its own, because a compiler cannot use the libraries of another version. `None` if
    /// the toolchain is not installed.
    ///
    /// # Panics
    ///
    /// If the dependencies do not compile.
    pub fn of_toolchain(toolchain: &str) -> Option<Self> {
        let run = ["rustup", "run", toolchain];
        let rustup = |program: &str| {
            let mut command = Command::new(run[0]);
            command.args(&run[1..]).arg(program);
            // These name the toolchain that runs this test.
            for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
                command.env_remove(variable);
            }
            command
        };
        let is_there = rustup("rustc").arg("--version").output();
        if !is_there.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let target = target_folder().join("compile-errors").join(toolchain);
        let rustc = run.into_iter().chain(["rustc"]).map(OsString::from).collect();
        Some(Self::with(rustc, &mut rustup("cargo"), &target))
    }

    fn with(rustc: Vec<OsString>, cargo: &mut Command, target: &Path) -> Self {
        let built = cargo
            .args([
                "build",
                "--quiet",
                "--message-format=json",
                "--package",
                env!("CARGO_PKG_NAME"),
                "--lib",
            ])
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let messages = String::from_utf8_lossy(&built.stdout);
        let mut options = Vec::new();
        for name in CRATES {
            let file = messages.lines().find_map(|line| library(line, name));
            let file = file.unwrap_or_else(|| panic!("cargo names no file of {name}"));
            options.extend(["--extern".to_owned(), format!("{name}={file}")]);
        }
        // Its profile is that of `cargo build`.
        let deps = target.join("debug").join("deps");
        options.extend(["-L".to_owned(), format!("dependency={}", deps.display())]);
        let output = target.join("compile-errors");
        fs::create_dir_all(&output).expect("the target folder can be written to");
        Self { rustc, options, output }
    }

    /// Returns what the compiler says about each case, in their order; `None` for one that
    /// compiles.
    ///
    /// # Panics
    ///
    /// If the compiler cannot be started.
    pub fn messages_of(&self, cases: &[PathBuf]) -> Vec<Option<String>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let share = cases.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let shares: Vec<_> = cases
                .chunks(share)
                .map(|cases| {
                    scope.spawn(|| cases.iter().map(|case| self.messages(case)).collect::<Vec<_>>())
                })
                .collect();
            shares.into_iter().flat_map(|share| share.join().expect("no case panics")).collect()
        })
    }

    fn messages(&self, case: &Path) -> Option<String> {
        let name =
            case.file_stem().and_then(|name| name.to_str()).expect("a file with a plain name");
        let (program, arguments) = self.rustc.split_first().expect("there is a program");
        let mut command = Command::new(program);
        if !arguments.is_empty() {
            command.env_remove("RUSTUP_TOOLCHAIN");
        }
        let compiled = command
            .args(arguments)
            // With code: a content that is taken twice is found only when it is generated.
            .args(["--edition=2024", "--crate-type=bin", "--emit=obj", "-Ccodegen-units=1"])
            .args(["--color=never", "--diagnostic-width=140"])
            .args(&self.options)
            .arg("-o")
            .arg(self.output.join(name).with_extension("o"))
            // The compiler shortens types by the length of the paths in them, so these must not
            // depend on where the workspace is.
            .arg(case.strip_prefix(workspace()).expect("a case is in the workspace"))
            // The compiler knows the framework's source by its path from here, and quotes it.
            .current_dir(workspace())
            .output()
            .expect("the compiler runs");
        if compiled.status.success() {
            return None;
        }
        Some(normalized(&String::from_utf8_lossy(&compiled.stderr)))
    }
}

/// The compiler that cargo uses.
fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// Returns the version of the compiler that cargo uses, such as `rustc 1.95.0 (..)`.
///
/// # Panics
///
/// If the compiler cannot be started.
pub fn version() -> String {
    let output = Command::new(rustc()).arg("--version").output().expect("the compiler runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The folder in which cargo has built this test program.
fn target_folder() -> PathBuf {
    let test = env::current_exe().expect("the system knows which program this is");
    test.ancestors().nth(3).expect("a test lies in target/<profile>/deps").to_owned()
}

/// The root of all packages.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the workspace is two folders up")
}

/// The file of a library, if this line of cargo's is about it.
fn library(line: &str, name: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = &message["target"];
    let is_it =
        target["name"] == name && target["kind"].as_array()?.iter().any(|kind| kind == "lib");
    let mut files =
        message["filenames"].as_array().filter(|_| is_it)?.iter().filter_map(Value::as_str);
    files.find(|file| file.ends_with(".rlib")).map(str::to_owned)
}

/// Leaves out what differs from machine to machine, or with each change of the framework: folders,
/// line numbers outside of the case, and how many other types implement a trait.
fn normalized(messages: &str) -> String {
    let text = messages.replace(OWN_FOLDER, "$DIR/");
    let mut lines = Vec::new();
    let mut is_elsewhere = false;
    for line in text.lines() {
        if is_summary(line) {
            continue;
        }
        let trimmed = line.trim_start();
        if let Some(place) = trimmed.strip_prefix("--> ").or_else(|| trimmed.strip_prefix("::: ")) {
            is_elsewhere = !place.starts_with("$DIR/");
            let (arrow, _) = line.split_at(line.len() - place.len());
            let place =
                if is_elsewhere { without_line(place) } else { place.replacen("$DIR/", "", 1) };
            lines.push(format!("{arrow}{place}"));
        } else if let Some((number, code)) = line.split_once('|').filter(|_| is_elsewhere) {
            let is_number = number.chars().all(|c| c == ' ' || c.is_ascii_digit());
            let number = if is_number { " ".repeat(number.len()) } else { number.to_owned() };
            lines.push(format!("{number}|{code}"));
        } else if trimmed.starts_with("and ") && trimmed.ends_with(" others") {
            lines.push(format!("{}and $N others", " ".repeat(line.len() - trimmed.len())));
        } else {
            is_elsewhere = is_elsewhere && trimmed.starts_with("...");
            lines.push(line.to_owned());
        }
    }
    let messages = lines.chunk_by(|_, line| !BEGINNINGS.iter().any(|one| line.starts_with(one)));
    let text: String = messages.map(unindented).collect();
    format!("{}\n", text.trim_end())
}

/// One message with a margin as wide as the numbers in it need. The compiler makes it as wide as
/// the largest number needs, and that may have been one of the framework's, which are left out.
fn unindented(message: &[String]) -> String {
    let margin = |line: &str| -> Option<(usize, usize)> {
        let (number, _) = line.split_once(" |")?;
        let digits = number.trim_start();
        digits.chars().all(|c| c.is_ascii_digit()).then_some((number.len(), digits.len()))
    };
    let margins: Vec<_> = message.iter().filter_map(|line| margin(line)).collect();
    let wide = margins.iter().map(|(width, _)| *width).max().unwrap_or(0);
    let needed = margins.iter().map(|(_, digits)| *digits).max().unwrap_or(0).max(1);
    let surplus = " ".repeat(wide.saturating_sub(needed));
    message
        .iter()
        .map(|line| format!("{}\n", line.strip_prefix(&surplus).unwrap_or(line)))
        .collect()
}

/// Whether a line only counts or explains the messages before it, or says where there is more.
fn is_summary(line: &str) -> bool {
    [
        "error: aborting due to ",
        "Some errors have detailed explanations",
        "For more information about ",
        // The name of the file with a long type contains a folder and a hash.
        "= note: the full name for the type has been written to ",
        "= note: consider using `--verbose` to print the full type name",
    ]
    .iter()
    .any(|start| line.trim_start().starts_with(start))
}

/// `file:line:column`, or the file of another crate below the folder that cargo or rustup keeps it
/// in.
fn without_line(place: &str) -> String {
    let file = place.rsplitn(3, ':').last().unwrap_or(place);
    if let Some((_, file)) = file.split_once("/lib/rustlib/src/rust/library/") {
        return format!("$RUST/{file}");
    }
    match file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')) {
        Some((_, file)) => format!("$CARGO/{file}"),
        None => format!("$WORKSPACE/{file}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_stay_in_the_case_only() {
        let messages = format!(
            "error: wrong\n  --> {OWN_FOLDER}cases/a.rs:4:2\n   |\n10 | code\n   |\nnote: here\n  \
             --> /home/b/.cargo/registry/src/index-1/serde-1.0.2/src/lib.rs:1:2\n   |\n\
             99 | fn f()\n   = and 12 others\n           and 12 others\n\nerror: aborting due to 1 \
             previous error\n"
        );
        let expected = "error: wrong\n  --> cases/a.rs:4:2\n   |\n10 | code\n   |\nnote: here\n  \
                        --> $CARGO/serde-1.0.2/src/lib.rs\n   |\n   | fn f()\n   = and 12 \
                        others\n           and $N others\n";
        assert_eq!(normalized(&messages), expected);
    }
}
