//! What the compiler says about the mistakes that beginners make.
//!
//! A content that is taken twice is found when code is generated, which these tests do not do: see the doc tests of
//! `Takes`.

use std::process::Command;

/// What a message says changes from one version of the compiler to the next: these are the words of this one.
const VERSION: &str = "rustc 1.95.";

#[test]
fn mistakes_are_explained() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(compiler).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    if !version.starts_with(VERSION) {
        println!("skipped: the messages are those of {VERSION}, and this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}
