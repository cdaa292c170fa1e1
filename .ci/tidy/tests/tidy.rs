//! Reads the source and the documentation as a reviewer would: layers, absent words, sizes, and
//! what is named where.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What some files must not mention, and why.
struct Layer {
    /// Paths from the root: files, or folders with all that is in them.
    files: &'static [&'static str],
    never: &'static [&'static str],
    because: &'static str,
}

const LAYERS: &[Layer] = &[
    Layer {
        files: &["crates/http1/src"],
        never: &[
            "filoplume_runtime",
            "mio",
            "TcpStream",
            "UnixStream",
            "Instant",
            "SystemTime::now",
            "std::thread",
            "Mutex",
        ],
        because: "http1 is bytes in, bytes out: no socket, no clock, no thread",
    },
    Layer {
        files: &[
            "crates/runtime/src/protocol/http/mod.rs",
            "crates/runtime/src/protocol/http/receive.rs",
            "crates/runtime/src/protocol/http/send.rs",
        ],
        never: &["EventLoop", "LoopHandle", "event_loop", "mio"],
        because: "a protocol says what it needs and knows no poller",
    },
    Layer {
        files: &["crates/runtime/src/protocol"],
        never: &["EventLoop", "Transport", "Connection", "worker", "mio", "TcpStream"],
        because: "a guest is bytes in, steps and bytes out: no socket, no loop, no thread",
    },
    Layer {
        files: &["crates/runtime/src/transport"],
        never: &["Guest", "Http", "Request", "Response", "EventLoop", "Engine"],
        because: "a transport moves bytes and knows nothing of what they mean",
    },
    Layer {
        files: &["crates/runtime/src/pool", "crates/runtime/src/queue.rs"],
        never: &[
            "http",
            "filoplume_http1",
            "Http",
            "Connection",
            "EventLoop",
            "Request",
            "Response",
            "mio",
        ],
        because: "the pool and the queue know nothing of what they carry",
    },
    Layer {
        files: &["crates/runtime/src/engine/event_loop"],
        never: &["http", "filoplume_http1", "Http", "Headers", "Request", "Response", "StatusCode"],
        because: "the event loop never sees a header",
    },
    Layer {
        files: &[
            "crates/gust/src/exchange.rs",
            "crates/gust/src/retry.rs",
            "crates/gust/src/schedule.rs",
            "crates/gust/src/histogram.rs",
            "crates/gust/src/tally.rs",
            "crates/gust/src/run.rs",
            "crates/gust/src/compare.rs",
            "crates/gust/src/report",
        ],
        never: &["mio", "Instant", "TcpStream", "UnixStream", "Worker", "Connection"],
        because: "what requests mean, when they are due and what came of them needs no socket and \
                  no clock",
    },
];

/// The rooms of each crate, from the bottom up. A room imports from those in the rows above its
/// own. Names that are no room, such as types which a crate's root has, are not looked at.
const ROOMS: &[(&str, &[&[&str]])] = &[
    (
        "crates/http1/src",
        &[
            &["date", "error", "limits", "scan", "syntax"],
            &["version"],
            &["framing"],
            &["fields"],
            &["content"],
            &["request", "response"],
            &["server", "client"],
        ],
    ),
    (
        "crates/runtime/src",
        &[
            &["sync", "clock", "error", "transport"],
            &["config", "execution"],
            &["budget"],
            &["pool", "queue", "buffers"],
            &["service", "metrics"],
            &["protocol"],
            &["engine"],
            &["server"],
        ],
    ),
    (
        "crates/filoplume/src",
        &[
            &["disk", "log", "redis_pool", "semantics"],
            &["client"],
            &["core"],
            &["key", "routing"],
            &["extract"],
            &["response"],
            &["error_response", "session", "static_files", "template"],
            &["middleware"],
            &["app"],
            &["serve"],
            &["testing", "prelude"],
        ],
    ),
    (
        "crates/gust/src",
        &[
            &["units", "target"],
            &["cpu", "transport", "timer", "retry", "histogram"],
            &["verify", "tally"],
            &["plan", "schedule"],
            &["args", "exchange", "outbox"],
            &["shared", "collector"],
            &["connection", "run", "progress"],
            &["blocking", "worker", "compare", "report"],
            &["load", "serve"],
        ],
    ),
];

/// Words that are nowhere in our code. Comments may speak of them.
const ABSENT_IN_CODE: &[&str] =
    &["unsafe", "todo!", "unimplemented!", "dbg!", "#[ignore", "async fn", ".await"];

/// Words that are not even in comments: an open end belongs into an issue.
const ABSENT: &[&str] = &["FIXME", "XXX"];

/// Longest file. A longer one has a second subject, which wants a room of its own.
const LINES_MAX: usize = 500;

/// Longest file of tests: rows of data are read one at a time.
const TEST_LINES_MAX: usize = 1000;

#[test]
fn layers_point_one_way() {
    let mut found = Vec::new();
    for layer in LAYERS {
        for file in layer.files.iter().flat_map(|path| rust_files(path)) {
            let code = file.code();
            for word in layer.never.iter().filter(|word| mentions(&code, word)) {
                found.push(format!("{} mentions `{word}`: {}", file.path, layer.because));
            }
        }
    }
    none(&found);
}

/// Every file imports only from rooms below its own: so there is no circle. A file that is in no
/// room of the list has not been given its place.
#[test]
fn rooms_import_from_below() {
    let mut found = Vec::new();
    for (source, rooms) in ROOMS {
        let place = |room: &str| rooms.iter().position(|row| row.contains(&room));
        for file in rust_files(source) {
            let inside = file.path.trim_start_matches(source).trim_start_matches('/');
            let room = inside.split('/').next().unwrap_or_default().trim_end_matches(".rs");
            if matches!(room, "lib" | "main") || is_test(inside) {
                continue;
            }
            let Some(own) = place(room) else {
                found.push(format!("{} is in no room", file.path));
                continue;
            };
            for import in imports(&file) {
                let is_below = import == room || place(&import).is_none_or(|place| place < own);
                if !is_below {
                    found.push(format!(
                        "{} imports from `{import}`, which is not below it",
                        file.path
                    ));
                }
            }
        }
    }
    none(&found);
}

/// Files of tests, which may look everywhere.
fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with("faults/")
        || path.starts_with("variations")
        || matches!(name, "tests.rs" | "models.rs" | "simulator.rs")
        || name.ends_with("_tests.rs")
}

/// What a file names after `crate::`, its tests aside.
fn imports(file: &File) -> HashSet<String> {
    let code = file.code();
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut imports = HashSet::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].lines().rev().nth(1).unwrap_or_default();
        if before.contains("cfg(all(test") {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let word = |text: &str| text.trim().chars().take_while(|&c| is_word(c)).collect::<String>();
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                imports.extend(list.split(',').map(word).filter(|name| !name.is_empty()));
            }
            None => _ = imports.insert(word(rest)),
        }
    }
    imports
}

#[test]
fn no_file_knows_the_poller_and_the_protocol() {
    let meets = |file: &File| {
        let code = file.code();
        mentions(&code, "EventLoop") && mentions(&code, "filoplume_http1")
    };
    let files = rust_files("crates/runtime/src");
    let found: Vec<_> = files.into_iter().filter(meets).map(|file| file.path).collect();
    none(&found);
}

#[test]
fn one_file_of_the_framework_names_the_server() {
    // What stands between quotes is text.
    let outside_of_texts =
        |file: &File| file.code().split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let names = |file: &File| mentions(&outside_of_texts(file), "Server");
    let files: Vec<_> = rust_files("crates/filoplume/src")
        .into_iter()
        .filter(names)
        .map(|file| file.path)
        .collect();
    // And the one that hands its name on.
    assert_eq!(files, ["crates/filoplume/src/lib.rs", "crates/filoplume/src/serve.rs"]);
}

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
fn files_are_short_enough_to_read() {
    let mut found = Vec::new();
    for file in our_files() {
        let lines = file.text.lines().count();
        let is_test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
        let lines_max = if is_test { TEST_LINES_MAX } else { LINES_MAX };
        if lines > lines_max {
            found.push(format!("{} has {lines} lines, more than {lines_max}", file.path));
        }
    }
    none(&found);
}

#[test]
fn every_file_says_what_it_is() {
    let starts_otherwise = |file: &File| !file.text.starts_with("//! ");
    let found: Vec<_> =
        our_files().into_iter().filter(starts_otherwise).map(|file| file.path).collect();
    assert!(found.is_empty(), "no module documentation at the top of {found:?}");
}

#[test]
fn every_example_is_named_in_the_guide() {
    let guide: String = documents().into_iter().map(|document| document.text).collect();
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.join("src/main.rs").exists() && !mentions(&guide, &name) {
            found.push(format!("example `{name}` is named nowhere"));
        }
    }
    none(&found);
}

#[test]
fn every_setting_is_in_the_guide() {
    let guide = read("docs/guide/configuration.md");
    let setters = |path| {
        let text = read(path);
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once("(mut self"));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let fields = |path| {
        let text = read(path);
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": usize,"));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let settings =
        [setters("crates/runtime/src/config.rs"), fields("crates/http1/src/limits.rs")].concat();
    assert!(settings.len() > 20, "the settings are no longer found: {settings:?}");
    let missing: Vec<_> =
        settings.iter().filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/guide/configuration.md: {missing:?}");
}

/// The compiler's advice and the guide name the extractors that can be in an `Option`.
#[test]
fn the_guide_knows_what_may_be_missing() {
    let source = rust_files("crates/filoplume/src");
    let implemented: BTreeSet<String> = source
        .iter()
        .flat_map(|file| file.text.lines())
        .filter(|line| line.starts_with("impl"))
        .filter_map(|line| line.split_once("ExtractOptional for ")?.1.split_once(" {"))
        .map(|(name, _)| name.to_owned())
        .collect();
    let listed = |text: &str, start: &str| {
        let sentence =
            text.split_once(start).and_then(|(_, rest)| rest.split(['.', ';', '"']).next());
        let names = sentence.unwrap_or_default().split('`').skip(1).step_by(2);
        names.filter(|name| *name != "Option").map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let optional = read("crates/filoplume/src/core/optional.rs");
    let guide = read("docs/guide/handlers.md");
    assert!(implemented.len() > 5, "the implementations are no longer found: {implemented:?}");
    assert_eq!(listed(&optional, "`Option` is possible for"), implemented, "the compiler's advice");
    assert_eq!(listed(&guide, "It is possible for"), implemented, "docs/guide/handlers.md");
}

/// `Type::function` is a function in a file that has the type; `Enum::Variant` is two words of one
/// file.
#[test]
fn the_map_names_what_exists() {
    let source = rust_files("crates");
    let map = read("docs/ARCHITECTURE.md");
    let exists = |name: &str| match name.rsplit_once("::") {
        None => source.iter().any(|file| mentions(&file.text, name)),
        Some((of, last)) => {
            let is_function = last.starts_with(char::is_lowercase);
            let last = if is_function { format!("fn {last}") } else { last.to_owned() };
            let has_both = |file: &File| mentions(&file.text, of) && mentions(&file.text, &last);
            source.iter().any(has_both)
                || (of.is_empty() && source.iter().any(|file| mentions(&file.text, &last)))
        }
    };
    let is_rust = |span: &&str| {
        (span.contains("::") || span.contains('_')) && span.chars().all(|c| is_word(c) || c == ':')
    };
    let names: HashSet<_> = map.split('`').skip(1).step_by(2).filter(is_rust).collect();
    assert!(names.len() > 40, "the names are no longer found: {names:?}");
    let missing: Vec<_> = names.into_iter().filter(|name| !exists(name)).collect();
    assert!(
        missing.is_empty(),
        "docs/ARCHITECTURE.md names what is not in the source: {missing:?}"
    );
}

#[test]
fn links_lead_somewhere() {
    let mut found = Vec::new();
    for document in documents() {
        let folder = root().join(&document.path);
        let folder = folder.parent().unwrap();
        let links = document
            .text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(link, _)| link);
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = link.split('#').next().unwrap_or_default();
            if !folder.join(path).exists() {
                found.push(format!("{} links to {link}, which is not there", document.path));
            }
        }
    }
    none(&found);
}

/// A row of the table is a link to a file, and the name of a test in it.
#[test]
fn every_promise_names_its_test() {
    let promises = read("SECURITY.md");
    let rows: Vec<&str> =
        promises.lines().filter(|line| line.starts_with("| ") && line.contains(".rs)")).collect();
    assert!(rows.len() > 20, "the table is not where it was");
    let has_test = |row: &str| {
        let (path, rest) = row.split_once("](")?.1.split_once(')')?;
        let test = rest.split('`').nth(1)?;
        read(path).contains(&format!("fn {test}(")).then_some(())
    };
    let found: Vec<String> = rows
        .into_iter()
        .filter(|row| has_test(row).is_none())
        .map(|row| format!("SECURITY.md: there is no such test: {row}"))
        .collect();
    none(&found);
}

#[test]
fn no_conflict_is_left_in_a_document() {
    let is_marker = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    let mut found = Vec::new();
    for document in documents() {
        if document.text.lines().any(is_marker) {
            found.push(format!("{} has both sides of a conflict", document.path));
        }
    }
    none(&found);
}

#[test]
fn the_changelog_has_room_for_the_next_change() {
    assert!(read("CHANGELOG.md").contains("\n## [Unreleased]\n"));
}

/// A file and its path from the root.
struct File {
    path: String,
    text: String,
}

impl File {
    /// The text without comments to the end of a line. (What a string holds counts as code.)
    fn code(&self) -> String {
        let without_comment = |line: &'_ str| {
            let mut ends = line.match_indices("//").map(|(at, _)| at);
            let end = ends.find(|&at| !line[..at].ends_with(':')).unwrap_or(line.len());
            line[..end].to_owned() + "\n"
        };
        self.text.lines().map(without_comment).collect()
    }
}

fn none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All of our Rust, but this file, which names what is absent, and the mistakes that the compiler
/// is to explain. (The peers' workspace is written as the peers are.)
fn our_files() -> Vec<File> {
    let folders = ["crates", "examples", "tests", ".ci"];
    let files =
        folders.into_iter().filter(|folder| root().join(folder).exists()).flat_map(rust_files);
    let is_ours = |file: &File| {
        file.path != ".ci/tidy/tests/tidy.rs" && !file.path.contains("/compile_errors/")
    };
    files.filter(is_ours).collect()
}

fn documents() -> Vec<File> {
    let mut documents = files("docs", "md");
    documents.extend(files("README.md", "md"));
    documents.extend(files("CHANGELOG.md", "md"));
    documents.extend(files("SECURITY.md", "md"));
    documents
}

fn rust_files(path: &str) -> Vec<File> {
    files(path, "rs")
}

fn files(path: &str, extension: &str) -> Vec<File> {
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

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a word occurs, and not as a part of a longer one.
fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let joins =
            |a: Option<char>, b: Option<char>| a.is_some_and(is_word) && b.is_some_and(is_word);
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !joins(before.chars().next_back(), word.chars().next())
            && !joins(word.chars().next_back(), after.chars().next())
    })
}

#[test]
fn a_word_is_not_found_in_a_longer_one() {
    assert!(mentions("use mio::Poll;", "mio"));
    assert!(!mentions("a_mio + miocene", "mio"));
    assert!(mentions("x.await;", ".await"));
    let file = File { path: String::new(), text: "let url = \"http://h\"; // https".to_owned() };
    assert_eq!(file.code(), "let url = \"http://h\"; \n");
}
