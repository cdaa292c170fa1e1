//! The decision records, which are never edited.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::source::{none, root};

/// Lines may be wrapped differently. Nothing else may change.
#[test]
fn each_decision_has_the_text_of_its_first_commit() {
    if git(&["rev-parse", "--is-shallow-repository"]).as_deref() != Some("false\n") {
        skip::because("there is no history of the decisions");
        return;
    }
    let folder = "docs/decisions";
    let log =
        git(&["log", "--no-renames", "--diff-filter=A", "--name-only", "--format=+%H", folder]);
    let log = log.unwrap();
    // The newest commit comes first, so the oldest text of each number is kept.
    let (mut commit, mut first) = ("", BTreeMap::new());
    for line in log.lines() {
        if let Some(hash) = line.strip_prefix('+') {
            commit = hash;
        } else if let Some(number) = number(line) {
            first.insert(number.to_owned(), format!("{commit}:{line}"));
        }
    }
    assert!(first.len() > 40, "the records are no longer found: {first:?}");
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let Some(number) = path.to_str().and_then(number) else { continue };
        // A record without a commit is new, and may still be edited.
        let Some(first) = first.remove(number) else { continue };
        let now = fs::read_to_string(&path).unwrap();
        if !git(&["show", &first]).unwrap().split_whitespace().eq(now.split_whitespace()) {
            found.push(format!("record {number} was edited: write a new one instead"));
        }
    }
    found.extend(first.keys().map(|number| format!("record {number} is gone")));
    none(&found);
}

/// Returns the number with which the name of a record begins.
fn number(path: &str) -> Option<&str> {
    let (number, _) = path.rsplit_once('/')?.1.split_once('-')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(number)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}
