//! The conformance corpus, at every split of the bytes.
//!
//! `UPDATE_EXPECT=1` writes the events that were found into the files. Review the difference.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod driver;

use std::fs;
use std::path::PathBuf;

use driver::corpus::{Case, Outcome, read_corpus};
use driver::{at_every_cut, events};
use filoplume_http1::Limits;

/// The number of cases when this was written. Fewer would mean that some are not read.
const CASES_MIN: usize = 1000;

/// The limits that `tests/corpus/README.md` lists.
fn limits() -> Limits {
    Limits {
        head_bytes_max: 1024,
        target_bytes_max: 256,
        fields_max: 40,
        chunk_line_bytes_max: 64,
        chunk_extension_bytes_max: 128,
        trailer_bytes_max: 128,
    }
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "corpus"].iter().collect()
}

/// Writes the events that were found into the files of the cases.
fn update(found: &[(Case, Vec<String>)]) {
    // From the last to the first, so that the line numbers of earlier cases stay valid.
    for (case, events) in found.iter().rev() {
        let path = folder().join(&case.file);
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.splice(case.events_at.clone(), events.iter().map(String::as_str));
        fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
}

#[test]
fn each_case_has_the_same_events_at_every_split() {
    let cases = read_corpus(&folder());
    assert!(cases.len() >= CASES_MIN, "{} cases were found", cases.len());
    let found: Vec<(Case, Vec<String>)> = cases
        .into_iter()
        .map(|case| {
            let events = events(&[&case.input], &limits());
            (case, events)
        })
        .collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        update(&found);
        return;
    }
    let mut cuts = 0;
    let mut wrong = Vec::new();
    for (case, events) in &found {
        if *events != case.events {
            wrong.push(format!("{case}\n  expected {:?}\n  found    {events:?}", case.events));
            continue;
        }
        match at_every_cut(&case.input, &limits(), events) {
            Ok(count) => cuts += count,
            Err((cut, other)) => {
                wrong.push(format!("{case}, {cut}\n  whole    {events:?}\n  found    {other:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), found.len(), wrong.join("\n"));
    assert!(cuts > 20 * CASES_MIN, "only {cuts} cuts were tried");
}

#[test]
fn each_message_of_a_case_has_an_outcome_and_only_the_last_may_be_the_end() {
    for case in read_corpus(&folder()) {
        let outcomes: Vec<Option<Outcome>> =
            case.messages().map(|message| Outcome::of(message.last().unwrap())).collect();
        let (last, before) = outcomes.split_last().unwrap_or_else(|| panic!("{case}: no events"));
        assert!(last.is_some(), "{case}: the last event is no outcome");
        assert!(
            before.iter().all(|&outcome| outcome == Some(Outcome::KeepAlive)),
            "{case}: {outcomes:?}"
        );
    }
}

/// Seeds for the fuzz targets, so that they do not have to discover HTTP: complete inputs, and
/// chunks without their heads.
#[test]
fn the_corpus_has_seeds_for_the_fuzz_targets() {
    let cases = read_corpus(&folder());
    let behind_head = |case: &Case| {
        let end = case.input.windows(4).position(|four| four == b"\r\n\r\n")?;
        let is_chunked = case.events.iter().any(|event| event == "chunked");
        is_chunked.then(|| case.input.get(end + 4..).unwrap().to_vec())
    };
    let whole: Vec<Vec<u8>> = cases.iter().map(|case| case.input.clone()).collect();
    let chunks: Vec<Vec<u8>> = cases.iter().filter_map(behind_head).collect();
    assert!(chunks.len() > 150, "only {} cases have chunks", chunks.len());
    // The folder in which `.ci/run` expects the seeds.
    let Some(seeds) = std::env::var_os("FUZZ_SEEDS").map(PathBuf::from) else {
        return;
    };
    for (target, inputs) in [("head", &whole), ("connection", &whole), ("chunked", &chunks)] {
        let folder = seeds.join(target);
        fs::create_dir_all(&folder).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(number.to_string()), input).unwrap();
        }
    }
}

/// The marker that the live test appends to each case must not change the result of the case.
#[test]
fn the_appended_marker_is_answered_or_not_read() {
    const MARKER: &[u8] = b"GET /behind HTTP/1.1\r\nHost: t\r\n\r\n";
    for case in read_corpus(&folder()) {
        let glued = [&case.input, MARKER].concat();
        let found = events(&[&glued], &limits());
        let (before, behind) = found.split_at(case.events.len().min(found.len()));
        match Outcome::of(case.events.last().unwrap()).unwrap() {
            Outcome::KeepAlive => {
                assert_eq!(before, case.events, "{case}");
                assert_eq!(behind, ["head GET /behind HTTP/1.1", "host t", "keep-alive"], "{case}");
            }
            Outcome::Close | Outcome::Refused(_) => assert_eq!(found, case.events, "{case}"),
            Outcome::Waiting => {}
        }
    }
}
