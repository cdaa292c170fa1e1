//! The shape of the text and of the repository: the width of lines, the length of files and the
//! entries of the top level.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::source::{File, documents, files, none, read, root, rust_files};

/// Widest line, in characters.
const COLUMNS_MAX: usize = 100;

/// In tests, a string literal longer than this may make its line too wide: an expected text is
/// easier to read and to compare in one piece. A message of a program is wrapped.
const LITERAL_MIN: usize = 60;

/// Longest file of any language, tests included. A longer one has a second subject, which needs a
/// file of its own. There are no exceptions for code.
const LINES_MAX: usize = 500;

/// The endings of files that may be longer: documents with their tables and cases, and files that
/// programs write.
const LONG_ENDINGS: &[&str] = &[".md", ".lock", "package-lock.json", ".sum", ".svg"];

/// The lists of the public surface, which a test writes.
const PUBLIC_API: &str = ".ci/tidy/public-api/";

/// The entries of the top level. Everything else is a scratch file, or needs a place of its own.
const TOP_LEVEL: &[&str] = &[
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "benches",
    "clippy.toml",
    "crates",
    "deny.toml",
    "docs",
    "examples",
    "rustfmt.toml",
    "tests",
];

#[test]
fn lines_are_at_most_100_columns_wide() {
    let mut found = Vec::new();
    let sources = ["crates", "examples", "tests", "benches", ".ci"];
    // The expected output of `compile_errors` shows columns of its cases.
    let is_checked = |file: &File| !file.path.contains("/compile_errors/cases/");
    for file in sources.into_iter().flat_map(rust_files).filter(is_checked) {
        found.extend(wide_lines(&file, &is_exempt_in_rust(&file)));
    }
    let mut texts = documents();
    texts.extend(sources.into_iter().flat_map(|folder| files(folder, "md")));
    // The cases of the corpus are data. Their headings and inputs may have any length.
    let is_case =
        |file: &File| file.path.starts_with("tests/corpus/") && !file.path.ends_with("README.md");
    for file in texts.iter().filter(|file| !is_case(file)) {
        found.extend(wide_lines(file, &is_exempt_in_markdown(file)));
    }
    let script = |path: &str| File { path: path.to_owned(), text: read(path) };
    let scripts = [".ci/run", ".ci/autobahn"].map(script).into_iter();
    // The peers' workspace follows the peers' style.
    let of = |folders: &[&str], ending| {
        folders.iter().flat_map(|folder| files(folder, ending)).collect::<Vec<_>>()
    };
    let pages = ["js", "css", "html"].map(|ending| of(&["crates", "examples", "tests"], ending));
    let others = scripts.chain(files(".ci/steps", "sh")).chain(pages.into_iter().flatten());
    for file in others {
        let is_exempt: Vec<bool> = file.text.lines().map(has_url).collect();
        found.extend(wide_lines(&file, &is_exempt));
    }
    for file in of(&["examples", "tests", ".ci"], "toml") {
        let is_exempt: Vec<bool> = file.text.lines().map(is_exempt_in_toml).collect();
        found.extend(wide_lines(&file, &is_exempt));
    }
    none(&found);
}

#[test]
fn files_have_at_most_500_lines() {
    let Some(listed) = tracked() else { return };
    let is_here = |path: &&str| has_bound(path) && root().join(path).is_file();
    let found = listed.lines().filter(is_here).filter_map(|path| {
        // Some seeds of the fuzz targets and a compressed page are not text.
        let text = String::from_utf8(fs::read(root().join(path)).unwrap()).ok()?;
        too_long(path, &text)
    });
    none(&found.collect::<Vec<_>>());
}

#[test]
fn the_top_level_has_no_other_entries() {
    let Some(listed) = tracked() else { return };
    let entries: BTreeSet<&str> =
        listed.lines().filter_map(|path| path.split('/').next()).collect();
    assert_eq!(entries, TOP_LEVEL.iter().copied().collect::<BTreeSet<_>>());
}

/// Returns the paths of all tracked files, one per line. Without git, or in a packaged source that
/// has no repository to ask, the test is reported as skipped.
fn tracked() -> Option<String> {
    let Ok(listed) = Command::new("git").arg("ls-files").current_dir(root()).output() else {
        skip::without("git");
        return None;
    };
    if !listed.status.success() {
        skip::because("the source is in no git repository");
        return None;
    }
    Some(String::from_utf8(listed.stdout).unwrap())
}

/// Returns whether the length of a file is bounded. Anything unknown is code, so that a file in a
/// new language is bounded too.
fn has_bound(path: &str) -> bool {
    !path.starts_with(PUBLIC_API) && !LONG_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Returns what is wrong with the length of a file.
fn too_long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX)
        .then(|| format!("{path} has {lines} lines, more than {LINES_MAX}: split it by subject"))
}

/// Returns the wide lines of a file, except those whose flag in `is_exempt` is set.
fn wide_lines(file: &File, is_exempt: &[bool]) -> Vec<String> {
    let lines = file.text.lines().zip(is_exempt).enumerate();
    lines
        .filter(|(_, (line, is_exempt))| !**is_exempt && columns(line) > COLUMNS_MAX)
        .map(|(at, (line, _))| format!("{}:{} has {} columns", file.path, at + 1, columns(line)))
        .collect()
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

/// Returns for each line of a Rust file whether it may be wide: lines with a URL, tables, and lines
/// of a string literal that cannot be wrapped, or of a long one in a test.
fn is_exempt_in_rust(file: &File) -> Vec<bool> {
    let mut literals = Literals::default();
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let mut is_test = file.path.contains("tests/") || name.contains("test");
    file.text
        .lines()
        .map(|line| {
            let starts_inside = literals.is_inside();
            let longest = literals.longest_in(line);
            is_test |= line.starts_with("#[cfg(test)]");
            // A literal that continues on the next line could have been wrapped earlier.
            let is_wrapped = line.ends_with('\\') && !literals.is_raw();
            let is_literal = starts_inside || literals.is_inside();
            let is_table = line.trim_start().starts_with("/// |");
            let is_expected = is_test && longest > LITERAL_MIN;
            is_table || has_url(line) || (!is_wrapped && (is_literal || is_expected))
        })
        .collect()
}

/// Returns for each line of a Markdown file whether it may be wide: tables, commands to copy, lines
/// with a URL, and code, except Rust in the guide, which is formatted as in a Rust file.
fn is_exempt_in_markdown(file: &File) -> Vec<bool> {
    let is_guide = file.path.starts_with("docs/guide/");
    let (mut is_code, mut is_rust) = (false, false);
    file.text
        .lines()
        .map(|line| {
            let line = line.trim_start();
            if let Some(language) = line.strip_prefix("```") {
                is_code = !is_code;
                is_rust = is_guide && language.starts_with("rust");
            }
            let is_command = line.starts_with("- `cargo ");
            let is_table = !is_code && line.starts_with('|');
            (is_code && !is_rust) || is_table || is_command || has_url(line)
        })
        .collect()
}

/// Returns whether a line of a TOML file may be wide: a URL, or what TOML wants in one line: a
/// string or an inline table.
fn is_exempt_in_toml(line: &str) -> bool {
    let line = line.trim();
    let value = line.split_once(" = ").map_or(line, |(_, value)| value);
    has_url(line) || value.starts_with(['"', '{'])
}

fn has_url(line: &str) -> bool {
    line.contains("http://") || line.contains("https://")
}

/// Finds string literals line by line, as far as the width of lines needs it.
#[derive(Default)]
struct Literals {
    /// The end of the literal that is still open after the last line, such as `"` or `"#`.
    open: Option<String>,
}

impl Literals {
    fn is_inside(&self) -> bool {
        self.open.is_some()
    }

    /// Returns whether the open literal is raw, so that it cannot be wrapped with a backslash.
    fn is_raw(&self) -> bool {
        self.open.as_ref().is_some_and(|end| end.len() > 1)
    }

    /// Reads one line. Returns the characters of its longest literal.
    fn longest_in(&mut self, line: &str) -> usize {
        let mut longest = 0;
        let mut rest = line;
        loop {
            if let Some(end) = self.open.clone() {
                let Some(at) = end_of_literal(rest, &end) else {
                    return longest.max(columns(rest));
                };
                longest = longest.max(columns(&rest[..at]));
                rest = &rest[at + end.len()..];
                self.open = None;
            }
            let Some(quote) = start_of_literal(rest) else { return longest };
            let hashes = rest[..quote].chars().rev().take_while(|&c| c == '#').count();
            let is_raw = rest[..quote - hashes].ends_with('r');
            let hashes = if is_raw { hashes } else { 0 };
            self.open = Some("\"".to_owned() + &"#".repeat(hashes));
            rest = &rest[quote + 1..];
        }
    }
}

/// Returns the index of the quote that begins the next literal, if it comes before a comment.
fn start_of_literal(line: &str) -> Option<usize> {
    let code = line.split("//").next().unwrap_or_default();
    let mut quotes = code.match_indices('"').map(|(at, _)| at);
    // `'"'` and `b'"'` are characters.
    quotes.find(|&at| {
        let (before, after) = (&code[..at], &code[at + 1..]);
        let is_character = before.ends_with('\'') && after.starts_with('\'');
        !is_character && !before.ends_with("'\\")
    })
}

/// Returns the index of the `end` that ends the open literal.
fn end_of_literal(line: &str, end: &str) -> Option<usize> {
    let mut ends = line.match_indices(end).map(|(at, _)| at);
    let is_escaped =
        |at: usize| line[..at].chars().rev().take_while(|&c| c == '\\').count() % 2 == 1;
    ends.find(|&at| end.len() > 1 || !is_escaped(at))
}

#[test]
fn wide_lines_are_exempt_only_for_a_reason() {
    let wide = "x".repeat(COLUMNS_MAX + 1);
    let check = |text: &str, is_markdown: bool| {
        let file = File { path: "docs/guide/f.md".to_owned(), text: text.to_owned() };
        let is_exempt =
            if is_markdown { is_exempt_in_markdown(&file) } else { is_exempt_in_rust(&file) };
        wide_lines(&file, &is_exempt).len()
    };
    assert_eq!(check(&wide, false), 1);
    assert_eq!(check(&"ü".repeat(COLUMNS_MAX), false), 0, "characters count, not bytes");
    assert_eq!(check(&format!("// {wide} https://a"), false), 0);
    assert_eq!(check(&format!("f(\"{wide}\");"), false), 1, "a message can be wrapped");
    assert_eq!(check(&format!("#[cfg(test)]\nf(\"{wide}\");"), false), 0);
    assert_eq!(check(&format!("#[cfg(test)]\nf(\"{wide}\\\n\");"), false), 1, "it is wrapped");
    assert_eq!(check(&format!("f(r#\"\n{wide}\n\"#);\n{wide}"), false), 1);
    assert_eq!(check(&format!("f(\"a \\\" b\"); // \" {wide}"), false), 1);
    assert_eq!(check(&format!("f('\"', b'\"'); {wide}"), false), 1);
    assert_eq!(check(&format!("| {wide} |"), true), 0);
    assert_eq!(check(&format!("```\n{wide}\n```\n{wide}"), true), 1);
    assert_eq!(check(&format!("```text\n{wide}\n```"), true), 0, "it is output");
    assert_eq!(check(&format!("```rust,no_run\n{wide}\n```"), true), 1);
    assert_eq!(check(&format!("```rust\n```\n```sh\n{wide}\n```"), true), 0);
    assert!(!is_exempt_in_toml(&format!("# {wide}")));
    assert!(!is_exempt_in_toml(&format!("features = [\"{wide}\"]")));
    assert!(is_exempt_in_toml(&format!("description = \"{wide}\"")));
    assert!(is_exempt_in_toml(&format!("filoplume = {{ path = \"{wide}\" }}")));
}

#[test]
fn the_line_beyond_the_maximum_is_one_too_many() {
    assert_eq!(too_long("a.rs", &"\n".repeat(LINES_MAX)), None);
    let told = too_long("a.rs", &"\n".repeat(LINES_MAX + 1)).unwrap();
    assert_eq!(told, "a.rs has 501 lines, more than 500: split it by subject");
}

#[test]
fn code_of_every_language_has_a_bound() {
    for path in ["a.rs", "a.sh", "a.js", "a/console.css", "a.go", ".ci/run", "Cargo.toml", "a.json"]
    {
        assert!(has_bound(path), "{path}");
    }
    for path in ["a.md", "Cargo.lock", "a/package-lock.json", ".ci/tidy/public-api/a.txt"] {
        assert!(!has_bound(path), "{path}");
    }
}
