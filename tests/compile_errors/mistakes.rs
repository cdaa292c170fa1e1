//! What the compiler says about the mistakes that beginners make.
//!
//! A case is `cases/NAME.rs`, a program with one mistake, and `cases/NAME.stderr`, what the
//! compiler says about it. To write the second file, or to update it:
//! `UPDATE_EXPECT=1 cargo test -p filoplume-compile-errors`, and then read it as the user would.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::path::Path;

use filoplume_compile_errors::{Compiler, version};

/// The messages change from one version of the compiler to the next. The files have those of this
/// version.
const TOOLCHAIN: &str = "1.95.0";

#[test]
fn mistakes_are_explained() {
    let release = TOOLCHAIN.rsplit_once('.').map_or(TOOLCHAIN, |(release, _)| release);
    let is_current = version().starts_with(&format!("rustc {release}."));
    let own = if is_current { Some(Compiler::find()) } else { Compiler::of_toolchain(TOOLCHAIN) };
    let compares = own.is_some();
    if !compares {
        skip::because(&format!(
            "the texts are those of Rust {TOOLCHAIN}, which is not installed; with {} it is only \
             checked that each case fails",
            version()
        ));
    }
    let compiler = own.unwrap_or_else(Compiler::find);
    let updates = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut cases: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "there are no cases");
    let mut wrong = String::new();
    for (case, messages) in cases.iter().zip(compiler.messages_of(&cases)) {
        let name = case.file_stem().unwrap().to_str().unwrap();
        let Some(messages) = messages else {
            wrong += &format!("\n== {name} compiles, so nobody is told of the mistake\n");
            continue;
        };
        if !messages.contains(&format!("cases/{name}.rs:")) {
            wrong += &format!("\n== {name}: no message is about a line of it\n\n{messages}");
            continue;
        }
        let file = case.with_extension("stderr");
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if messages == expected || !compares {
            continue;
        }
        if updates {
            fs::write(file, messages).unwrap();
        } else {
            wrong +=
                &format!("\n== {name}: expected\n\n{expected}\n== {name}: found\n\n{messages}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}\nTo accept what was found: UPDATE_EXPECT=1.");
}
