//! Reporting tests that cannot run on this machine.
//!
//! The test harness does not show the output of passing tests. These lines are written to stderr
//! directly, so `cargo test` shows them, and `.ci/run` collects them.

use std::env;
use std::io::{self, Write as _};
use std::thread;

/// An environment variable with the programs that `.ci/run` has found or installed, separated by
/// spaces. A test that skips although its program is listed fails.
const PRESENT: &str = "FILOPLUME_CI_HAS";

/// Reports that the current test is skipped because a program is not installed.
///
/// # Panics
///
/// Panics if `.ci/run` says that the program is installed.
#[track_caller]
pub fn without(program: &str) {
    let present = env::var(PRESENT).unwrap_or_default();
    assert!(
        !is_in(program, &present),
        "{program} was not found, and {PRESENT} says that it is there"
    );
    because(&format!("{program} is not installed"));
}

/// Reports that the current test is skipped for a reason other than a missing program, such as a
/// system without IPv6.
pub fn because(reason: &str) {
    let thread = thread::current();
    let line = line(thread.name().unwrap_or("a test"), reason);
    // If stderr is closed, there is nowhere to report to.
    let _ = io::stderr().write_all(line.as_bytes());
}

fn line(test: &str, reason: &str) -> String {
    format!("SKIPPED: {test}: {reason}\n")
}

fn is_in(program: &str, present: &str) -> bool {
    present.split_whitespace().any(|one| one == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_test_and_the_reason() {
        assert_eq!(
            line("tests::x", "wrk is not installed"),
            "SKIPPED: tests::x: wrk is not installed\n"
        );
    }

    #[test]
    fn a_program_is_found_by_its_full_name() {
        assert!(is_in("ab", "wrk ab curl"));
        assert!(!is_in("ab", "wrk lab abc"));
        assert!(!is_in("ab", ""));
    }
}
