//! The guide's page of mistakes quotes what the compiler, or the start of an app, says.

use crate::source::{files, is_word, none, read};

/// More files with messages of the start, beside `tests/compile_errors/cases`.
const OTHER_MESSAGES: &[&str] = &[
    "crates/filoplume/tests/it/mistakes.rs",
    "crates/filoplume/tests/it/middleware/mistakes.rs",
    "crates/filoplume/tests/it/routing/mistakes.rs",
    "crates/runtime/src/error.rs",
    "crates/runtime/src/server/address.rs",
    // The message of a macro, which has no case.
    "crates/filoplume/src/template.rs",
];

#[test]
fn the_guide_quotes_messages_that_exist() {
    let cases = files("tests/compile_errors/cases", "stderr").into_iter().map(|file| file.text);
    let texts = cases.chain(OTHER_MESSAGES.iter().map(|path| read(path)));
    let messages: Vec<String> =
        texts.flat_map(|text| text.lines().map(plain).collect::<Vec<_>>()).collect();
    let page = read("docs/guide/mistakes.md");
    let quotes: Vec<(&str, String)> = page
        .lines()
        .flat_map(|row| quotes(row).into_iter().map(move |quote| (row, quote)))
        .collect();
    assert!(quotes.len() > 50, "only {} quotes are found", quotes.len());
    let exists = |quote: &str| messages.iter().any(|message| has(message, quote));
    let found: Vec<String> = quotes
        .into_iter()
        .filter(|(_, quote)| !exists(&plain(quote)))
        .map(|(row, quote)| {
            format!("docs/guide/mistakes.md: no message is `{}`: {row}", quote.trim())
        })
        .collect();
    none(&found);
}

/// Returns the code of a row's second column, which quotes our messages.
fn quotes(row: &str) -> Vec<String> {
    // A `|` of the text is escaped in a table.
    let row = row.replace("\\|", "\0");
    let Some(mut rest) = row.strip_prefix('|').and_then(|row| row.split('|').nth(1)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].chars().take_while(|&c| c == '`').count();
        let (mark, after) = rest[start..].split_at(ticks);
        let Some((quote, behind)) = after.split_once(mark) else { break };
        found.push(quote.replace('\0', "|"));
        rest = behind;
    }
    found
}

/// Returns a message as it is compared: without marks of code, the modules of names, and white
/// space of more than one character.
fn plain(message: &str) -> String {
    let message = message.replace('`', "");
    let mut names = String::new();
    let mut parts = message.split("::").peekable();
    while let Some(part) = parts.next() {
        let before = part.trim_end_matches(is_word);
        match parts.peek() {
            None => names += part,
            Some(_) if part[before.len()..].starts_with(char::is_lowercase) => names += before,
            Some(_) => names = names + part + "::",
        }
    }
    names.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a message has a quote. `..` in a quote stands for anything.
fn has(message: &str, quote: &str) -> bool {
    let mut rest = Some(message);
    for part in quote.split("..") {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
    }
    rest.is_some()
}

#[test]
fn a_quote_is_compared_without_its_types_and_paths() {
    let row = "| a \\| b | start: ``extracts `State<..>` `` and `x \\| y` | `axum` | fix |";
    assert_eq!(quotes(row), ["extracts `State<..>` ", "x | y"]);
    assert_eq!(quotes("no row of a table"), [""; 0]);
    assert_eq!(plain("it  extracts `State<std::io::Error>`"), "it extracts State<Error>");
    assert_eq!(plain("call `Error::internal`"), "call Error::internal");
    assert!(has("it extracts State<u8>, see", "extracts State<..>, see"));
    assert!(!has("it extracts State<u8>, see", "takes State<..>, see"));
    assert!(!has("b, then a", "a..b"), "the order counts");
}
