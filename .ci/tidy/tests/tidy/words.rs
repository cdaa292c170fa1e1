//! Words that must not occur, and module documentation.

use crate::source::{File, documents, mentions, none, our_files};

/// Words that must not occur in our code. Comments may mention them.
const ABSENT_IN_CODE: &[&str] =
    &["unsafe", "todo!", "unimplemented!", "dbg!", "#[ignore", "async fn", ".await"];

/// Words that must not occur even in comments: unfinished work belongs into an issue.
const ABSENT: &[&str] = &["FIXME", "XXX"];

/// Phrases that must not occur in code, comments and documents, because they need a second reading.
/// Say which ones: "running requests", "queued output". Records and the changelog stay as written.
const OBSCURE: &[&str] = &["as of one moment", "at hand"];

#[test]
fn absent_words_are_absent() {
    let mut found = Vec::new();
    for file in our_files() {
        let code = file.code();
        let in_code = ABSENT_IN_CODE.iter().filter(|word| mentions(&code, word));
        let anywhere = ABSENT.iter().filter(|word| mentions(&file.text, word));
        found.extend(in_code.chain(anywhere).map(|word| format!("{} has `{word}`", file.path)));
    }
    none(&found);
}

#[test]
fn obscure_phrases_are_absent() {
    let is_record = |file: &File| {
        file.path.starts_with("docs/decisions/") || file.path.as_str() == "CHANGELOG.md"
    };
    let mut texts = our_files();
    texts.extend(documents().into_iter().filter(|file| !is_record(file)));
    let mut found = Vec::new();
    for file in texts {
        // A phrase may go on in the next line of a comment.
        let lines = file.text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!']));
        let text = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        let obscure = OBSCURE.iter().filter(|phrase| mentions(&text, phrase));
        found.extend(obscure.map(|phrase| format!("{} has `{phrase}`", file.path)));
    }
    none(&found);
}

#[test]
fn every_file_has_module_documentation() {
    let lacks_docs = |file: &File| !file.text.starts_with("//! ");
    let found: Vec<_> = our_files().into_iter().filter(lacks_docs).map(|file| file.path).collect();
    assert!(found.is_empty(), "no module documentation at the top of {found:?}");
}

#[test]
fn a_word_is_not_found_in_a_longer_one() {
    assert!(mentions("use mio::Poll;", "mio"));
    assert!(!mentions("a_mio + miocene", "mio"));
    assert!(mentions("x.await;", ".await"));
    let file = File { path: String::new(), text: "let url = \"http://h\"; // https".to_owned() };
    assert_eq!(file.code(), "let url = \"http://h\"; \n");
}
