//! Reading the repository, for the tests.

use std::fs;
use std::path::{Path, PathBuf};

/// A file and its path from the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Returns the text without line comments. String literals count as code.
    pub(crate) fn code(&self) -> String {
        let without_comment = |line: &'_ str| {
            let mut ends = line.match_indices("//").map(|(at, _)| at);
            let end = ends.find(|&at| !line[..at].ends_with(':')).unwrap_or(line.len());
            line[..end].to_owned() + "\n"
        };
        self.text.lines().map(without_comment).collect()
    }
}

pub(crate) fn none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all our Rust files, except `words.rs`, which has the absent words, and the mistakes of
/// `tests/compile_errors`. The peers' workspace follows the peers' style and is not checked.
pub(crate) fn our_files() -> Vec<File> {
    let folders = ["crates", "examples", "tests", ".ci"];
    let files =
        folders.into_iter().filter(|folder| root().join(folder).exists()).flat_map(rust_files);
    let is_ours = |file: &File| {
        file.path != ".ci/tidy/tests/tidy/words.rs" && !file.path.contains("/compile_errors/")
    };
    files.filter(is_ours).collect()
}

pub(crate) fn documents() -> Vec<File> {
    let mut documents = files("docs", "md");
    documents.extend(files("README.md", "md"));
    documents.extend(files("CHANGELOG.md", "md"));
    documents.extend(files("CONTRIBUTING.md", "md"));
    documents.extend(files("SECURITY.md", "md"));
    documents
}

pub(crate) fn rust_files(path: &str) -> Vec<File> {
    files(path, "rs")
}

pub(crate) fn files(path: &str, extension: &str) -> Vec<File> {
    let whole = root().join(path);
    if whole.is_file() {
        let is_wanted = whole.extension().is_some_and(|found| found == extension);
        return if is_wanted {
            vec![File { path: path.to_owned(), text: read(path) }]
        } else {
            Vec::new()
        };
    }
    let entries = fs::read_dir(&whole).unwrap_or_else(|error| panic!("{path}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    let mut names: Vec<_> =
        names.filter(|name| name != "target" && !name.starts_with('.')).collect();
    names.sort();
    names.iter().flat_map(|name| files(&format!("{path}/{name}"), extension)).collect()
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether a word occurs other than as a part of a longer one.
pub(crate) fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let joins =
            |a: Option<char>, b: Option<char>| a.is_some_and(is_word) && b.is_some_and(is_word);
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !joins(before.chars().next_back(), word.chars().next())
            && !joins(word.chars().next_back(), after.chars().next())
    })
}
