//! Which parts of the source may name which others.

use std::collections::{BTreeMap, HashMap};

use crate::imports::{Path, module_of, paths, root_names};
use crate::source::{File, mentions, none, read, rust_files};

/// Words that some files must not mention, and why.
struct Layer {
    /// Paths from the root: files, or folders with all their files.
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
        because: "http1 takes bytes and returns bytes: no socket, no clock, no thread",
    },
    Layer {
        files: &["crates/websocket/src"],
        never: &[
            "filoplume_http1",
            "filoplume_runtime",
            "mio",
            "TcpStream",
            "UnixStream",
            "Instant",
            "SystemTime",
            "std::thread",
            "Mutex",
        ],
        because: "websocket takes bytes and returns bytes: no socket, no clock, no thread",
    },
    Layer {
        files: &["crates/runtime/src/protocol/http"],
        never: &["EventLoop", "LoopHandle", "event_loop::", "mio"],
        because: "a protocol returns what it needs and knows no poller",
    },
    Layer {
        files: &["crates/runtime/src/protocol"],
        never: &["EventLoop", "Transport", "Connection", "worker", "mio", "TcpStream"],
        because: "a guest takes bytes and returns steps and bytes: no socket, no loop, no thread",
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
        because: "the pool and the queue do not know what their tasks and messages are",
    },
    Layer {
        files: &["crates/runtime/src/engine/event_loop"],
        never: &["http", "filoplume_http1", "Http", "Headers", "Request", "Response", "StatusCode"],
        because: "the event loop never sees a header",
    },
    Layer {
        files: &[
            "crates/gust/src/arrival.rs",
            "crates/gust/src/event_stream.rs",
            "crates/gust/src/exchange.rs",
            "crates/gust/src/exchange",
            "crates/gust/src/retry.rs",
            "crates/gust/src/schedule.rs",
            "crates/gust/src/histogram.rs",
            "crates/gust/src/tally.rs",
            "crates/gust/src/run.rs",
            "crates/gust/src/compare.rs",
            "crates/gust/src/report",
        ],
        never: &["mio", "Instant", "TcpStream", "UnixStream", "Worker", "Connection"],
        because: "the meaning, schedule and results of requests need no socket and no clock",
    },
    Layer {
        files: &[
            "crates/gust/src/top/cells.rs",
            "crates/gust/src/top/panes.rs",
            "crates/gust/src/top/rows.rs",
            "crates/gust/src/top/snapshot.rs",
            "crates/gust/src/top/view.rs",
            "crates/gust/src/top/view",
        ],
        never: &["crossterm", "Instant", "SystemTime", "TcpStream", "UnixStream"],
        because: "what `gust top` shows needs no terminal, no socket and no clock",
    },
];

/// The rooms of each crate, from the bottom up: a room may import only from the rooms in earlier
/// rows of this list. Names that are not rooms, such as types in a crate's root, are not checked.
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
        "crates/websocket/src",
        &[
            &["limits", "mask", "role"],
            &["close"],
            &["error"],
            &["frame"],
            &["deflate"],
            &["decoder", "encoder", "handshake"],
        ],
    ),
    (
        "crates/runtime/src",
        &[
            &["client_address"],
            &["sync", "clock", "error", "sorted", "transport"],
            &["config", "execution", "tls"],
            &["budget"],
            &["pool", "queue", "buffers"],
            &["metrics"],
            &["service"],
            &["protocol"],
            &["engine"],
            &["server", "fuzzing"],
        ],
    ),
    (
        "crates/filoplume/src",
        &[
            &["broadcast", "disk", "log", "redis_pool", "semantics", "working_directory"],
            &["client", "observe"],
            &["core"],
            &["instances", "key", "routing"],
            &["extract"],
            &["response"],
            &[
                "error_response",
                "health",
                "session",
                "sse",
                "static_files",
                "template",
                "websocket",
            ],
            &["middleware"],
            &["console"],
            &["app"],
            &["serve"],
            &["testing", "prelude"],
        ],
    ),
    (
        "crates/otlp/src",
        &[
            &["protobuf", "random", "limits", "error"],
            &["value", "environment"],
            &["span", "queue", "batch"],
            &["http", "layer"],
            &["exporter", "current"],
            &["settings"],
        ],
    ),
    (
        "crates/gust/src",
        &[
            &["units", "target", "tls", "without_tls", "arrival", "websocket"],
            &["cpu", "transport", "timer", "retry", "histogram", "url_list", "event_stream"],
            &["verify", "tally"],
            &["plan", "schedule"],
            &["args", "exchange", "outbox"],
            &["shared", "collector"],
            &["connection", "request_source", "run", "progress"],
            &["blocking", "worker", "compare", "report"],
            &["load", "serve", "top"],
        ],
    ),
    (
        "benches/peers/measure/src",
        &[
            &["busy", "clients", "printed", "proc", "server"],
            &["build", "child"],
            &["docs", "running"],
            &["backends", "job", "report", "strace"],
            &["who"],
            &["ab", "gust", "observe", "oha", "probe", "wrk"],
            &["generator"],
            &["scenario"],
            &["counts", "fair", "idle", "misses", "real", "size", "startup", "waits"],
            &["echo"],
            &["scenarios"],
            &["args"],
            &["rounds"],
            &["svg"],
            &["chart", "claims", "curves", "live", "load_clients", "machine"],
        ],
    ),
    (
        "tests/src",
        &[
            &["browser", "corpus", "process", "stream", "wait"],
            &["client"],
            &["child", "latency", "load", "noise", "server"],
            &["contents", "gate", "redis", "tls"],
            &["attack", "record_client"],
        ],
    ),
    (".ci/tidy/src", &[&["public_api"], &["examples"]]),
    (
        ".ci/tidy/tests/tidy",
        &[
            &["source"],
            &["decisions", "dependencies", "documents", "imports", "layout", "mistakes", "words"],
            &["layers"],
        ],
    ),
];

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

/// Every file imports only from rooms below its own, so there are no cycles. Every file must be in
/// a room of the list.
#[test]
fn rooms_import_from_below() {
    let mut found = Vec::new();
    for (source, rooms) in ROOMS {
        let files = rust_files(source);
        let inside = |file: &File| file.path[source.len() + 1..].to_owned();
        let is_root = |file: &&File| matches!(inside(file).as_str(), "lib.rs" | "main.rs");
        let root_names = files.iter().filter(is_root).flat_map(|file| root_names(&file.text));
        let order = Order { rooms, root_names: root_names.collect() };
        for file in files.iter().filter(|file| !is_root(file) && !is_test(&inside(file))) {
            let mistakes = order.mistakes(&inside(file), &file.text);
            found.extend(mistakes.into_iter().map(|mistake| format!("{} {mistake}", file.path)));
        }
    }
    none(&found);
}

/// The order of a crate's rooms.
struct Order<'a> {
    rooms: &'a [&'a [&'a str]],
    /// What the names of the crate's root stand for.
    root_names: HashMap<String, Path>,
}

impl Order<'_> {
    /// Returns what is wrong with the imports of a file, whose path is below the crate's root.
    fn mistakes(&self, path: &str, text: &str) -> Vec<String> {
        let module = module_of(path);
        let room = module[0];
        let Some(own) = self.place(room) else {
            return vec!["is in no room".to_owned()];
        };
        let mut found = Vec::new();
        // One import from each room is enough to report.
        let mut others = BTreeMap::new();
        for path in paths(&module, text) {
            if path == ["*"] {
                found.push("imports all names of the crate's root".to_owned());
            }
            if let Some(other) = self.room_of(&path) {
                others.entry(other.to_owned()).or_insert(path);
            }
        }
        let is_allowed =
            |other: &str| other == room || self.place(other).is_none_or(|place| place < own);
        let above = others.into_iter().filter(|(other, _)| !is_allowed(other));
        found.extend(above.map(|(other, path)| {
            format!("imports `{}` from `{other}`, which is not below it", path.join("::"))
        }));
        found
    }

    fn place(&self, room: &str) -> Option<usize> {
        self.rooms.iter().position(|row| row.contains(&room))
    }

    /// Returns the room that an import is from. A name that the crate's root re-exports belongs to
    /// the room that it comes from.
    fn room_of<'a>(&'a self, path: &'a Path) -> Option<&'a String> {
        let first = path.first()?;
        if self.place(first).is_some() { Some(first) } else { self.root_names.get(first)?.first() }
    }
}

#[test]
fn an_import_from_above_is_a_mistake_in_every_form() {
    let order = Order {
        rooms: &[&["low", "other"], &["middle"], &["high"]],
        root_names: root_names("pub use crate::high::{Top, inner::Inner}; pub use low::Bottom;"),
    };
    let told = |text: &str| order.mistakes("middle/part.rs", text).join("\n");
    for allowed in [
        "use crate::low::{One, two::{Three, four}};",
        "use super::super::{low, middle::other};",
        "use crate::{Bottom, unknown, middle::One};",
        "#[cfg(test)] mod tests { use crate::high::One; }",
    ] {
        assert_eq!(told(allowed), "", "{allowed}");
    }
    for (text, path) in [
        ("use crate::high::One;", "high::One"),
        ("use crate::{low::{One, Two}, high};", "high"),
        ("use crate::{low, high::{inner::{One, Two}}};", "high::inner::One"),
        ("use super::super::high::One;", "high::One"),
        ("fn f() { super::super::high::one(); }", "high::one"),
        ("mod inline { use super::super::super::high; }", "high"),
        ("use crate::Top;", "Top"),
        ("fn f(a: crate::Inner) {}", "Inner"),
    ] {
        let expected = format!("imports `{path}` from `high`, which is not below it");
        assert_eq!(told(text), expected, "{text}");
    }
    assert_eq!(told("use super::super::*;"), "imports all names of the crate's root");
    assert_ne!(order.mistakes("low.rs", "use crate::other;"), [""; 0], "they lie in one row");
    assert_eq!(order.mistakes("new.rs", ""), ["is in no room"]);
}

/// The table says that rooms import only from rooms above them. The order of the list is checked
/// against the imports, and the order of the table against the list.
#[test]
fn the_table_of_the_rooms_has_the_order_of_the_list() {
    let map = read("docs/ARCHITECTURE.md");
    let (_, rooms) = ROOMS.iter().find(|(source, _)| *source == "crates/runtime/src").unwrap();
    let (_, section) = map.split_once("\n### filoplume-runtime\n").unwrap();
    none(&mistakes_of_table(rooms, section));
}

/// Returns what is wrong with the first table of rooms in a text.
fn mistakes_of_table(rooms: &[&[&str]], text: &str) -> Vec<String> {
    let place = |room: &str| rooms.iter().position(|row| row.contains(&room));
    let table = text.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| ")?.split(" |").next());
    let names: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut found = Vec::new();
    let mut above = ("", 0);
    for &name in &names {
        match place(name) {
            None => found.push(format!("`{name}` of the table is no room")),
            Some(place) if place < above.1 => {
                found.push(format!("`{name}` may not stand below `{}` in the table", above.0));
            }
            Some(place) => above = (name, place),
        }
    }
    if names.len() < 2 {
        found.push("the table is no longer found".to_owned());
    }
    found
}

#[test]
fn a_table_in_another_order_is_a_mistake() {
    let table = |names: &[&str]| {
        let rows = names.iter().map(|name| format!("| {name} | what |\n"));
        let table = format!("| room | what |\n|---|---|\n{}\n`b`", rows.collect::<String>());
        mistakes_of_table(&[&["a", "b"], &["c"], &["d"]], &table)
    };
    assert_eq!(table(&["`b`, `a`", "`c`", "`d`"]), [""; 0]);
    assert_eq!(table(&["`a`", "`d`", "`c`"]), ["`c` may not stand below `d` in the table"]);
    assert_eq!(table(&["`a`", "`e`"]), ["`e` of the table is no room"]);
    assert_eq!(table(&[]), ["the table is no longer found"]);
}

/// Returns whether a file has tests, which may import from everywhere.
fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with("faults/")
        || path.starts_with("variations")
        || matches!(name, "tests.rs" | "models.rs" | "simulator.rs")
        || name.ends_with("_tests.rs")
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
    // Names in string literals do not count.
    let outside_of_texts =
        |file: &File| file.code().split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let names = |file: &File| mentions(&outside_of_texts(file), "Server");
    let files: Vec<_> = rust_files("crates/filoplume/src")
        .into_iter()
        .filter(names)
        .map(|file| file.path)
        .collect();
    // `lib.rs` only re-exports the server.
    assert_eq!(files, ["crates/filoplume/src/lib.rs", "crates/filoplume/src/serve.rs"]);
}
