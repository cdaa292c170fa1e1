//! Which parts of the source may name which others.

use std::collections::HashSet;

use crate::source::{File, is_word, mentions, none, rust_files};

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
        files: &[
            "crates/runtime/src/protocol/http/mod.rs",
            "crates/runtime/src/protocol/http/receive.rs",
            "crates/runtime/src/protocol/http/send.rs",
            "crates/runtime/src/protocol/http/send_file.rs",
        ],
        never: &["EventLoop", "LoopHandle", "event_loop", "mio"],
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
            "crates/gust/src/exchange/live.rs",
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
        ],
        never: &["crossterm", "Instant", "SystemTime", "TcpStream", "UnixStream"],
        because: "what `gust top` shows needs no terminal, no socket and no clock",
    },
];

/// The rooms of each crate, from the bottom up. A room may import from the rooms in the rows above
/// its own. Names that are not rooms, such as types in a crate's root, are not checked.
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
            &["broadcast", "disk", "log", "redis_pool", "semantics"],
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

/// Returns whether a file has tests, which may import from everywhere.
fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with("faults/")
        || path.starts_with("variations")
        || matches!(name, "tests.rs" | "models.rs" | "simulator.rs")
        || name.ends_with("_tests.rs")
}

/// Returns the names that follow `crate::` in a file, except in its tests.
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
    // Names in string literals do not count.
    let outside_of_texts =
        |file: &File| file.code().split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let names = |file: &File| mentions(&outside_of_texts(file), "Server");
    let files: Vec<_> = rust_files("crates/filoplume/src")
        .into_iter()
        .filter(names)
        .map(|file| file.path)
        .collect();
    // `lib.rs` only re-exports it.
    assert_eq!(files, ["crates/filoplume/src/lib.rs", "crates/filoplume/src/serve.rs"]);
}
