//! How a test says that it cannot run here, so that somebody sees it.
//!
//! The test harness keeps what a test that passes has printed to itself. These lines are written
//! past it: `cargo test` shows them, and `.ci/run` collects them.

use std::env;
use std::io::{self, Write as _};
use std::thread;

/// The programs that `.ci/run` has found or installed, with spaces between. A test that skips
/// although its program is among them fails.
const PRESENT: &str = "FILOPLUME_CI_HAS";

/// Says that the current test is skipped because a program is not installed.
///
/// # Panics
///
/// If `.ci/run` says that the program is installed.
#[track_caller]
pub fn without(program: &str) {
    let present = env::var(PRESENT).unwrap_or_default();
    assert!(
        !is_in(program, &present),
        "{program} was not found, and {PRESENT} says that it is there"
    );
    because(&format!("{program} is not installed"));
}

/// Says that the current test is skipped because of something that no program would change, such as
/// a system without IPv6.
pub fn because(reason: &str) {
    let thread = thread::current();
    let line = line(thread.name().unwrap_or("a test"), reason);
    // Whoever closed stderr does not want to know.
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
    fn a_line_says_which_test_and_why() {
        assert_eq!(
            line("tests::x", "wrk is not installed"),
            "SKIPPED: tests::x: wrk is not installed\n"
        );
    }

    #[test]
    fn a_program_is_found_by_its_whole_name() {
        assert!(is_in("ab", "wrk ab curl"));
        assert!(!is_in("ab", "wrk lab abc"));
        assert!(!is_in("ab", ""));
    }
}
