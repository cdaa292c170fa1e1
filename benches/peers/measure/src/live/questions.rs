//! The questions, and the servers that they are asked of.

use crate::report::{Column, Show};
use crate::scenario::{
    CPU, LONGEST, MEMORY, OTHERS, P50, P99, RATE, SWITCHES, THREADS, USER, column,
};

/// A question to several servers.
pub struct Question {
    pub name: &'static str,
    /// A name by which several questions are asked at once. Such questions are asked only by name.
    pub group: Option<&'static str>,
    pub asks: &'static str,
    /// Our server is first. The second one is the reference of the ratios.
    pub who: &'static [Asked],
    /// The options of gust besides the length of the run.
    pub options: &'static [&'static str],
    pub columns: &'static [Column],
    pub kind: Kind,
    /// The length of a broadcast. The default is 1 KiB.
    pub broadcast_bytes: Option<u32>,
}

/// What the connections of a question do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They send messages and get answers.
    Asking,
    /// They receive.
    Receiving,
    /// They are open and silent.
    Silent,
    /// Each makes a TLS handshake.
    FullHandshakes,
    /// Each makes a TLS handshake that resumes an earlier session.
    ResumedHandshakes,
}

/// One server of a question.
pub struct Asked {
    pub label: &'static str,
    pub server: &'static str,
    /// The scheme, and the path.
    pub url: (&'static str, &'static str),
}

const fn asked(
    label: &'static str,
    server: &'static str,
    scheme: &'static str,
    path: &'static str,
) -> Asked {
    Asked { label, server, url: (scheme, path) }
}

const fn question(
    name: &'static str,
    asks: &'static str,
    who: &'static [Asked],
    options: &'static [&'static str],
    columns: &'static [Column],
    kind: Kind,
) -> Question {
    Question { name, group: None, asks, who, options, columns, kind, broadcast_bytes: None }
}

const COLUMNS: &[Column] = &[RATE, CPU, USER, SWITCHES, P50, P99, LONGEST, THREADS, MEMORY, OTHERS];

const AGREED: Column = column("tls", "TLS", 0, Show::Text);

const TLS_COLUMNS: &[Column] =
    &[RATE, CPU, USER, SWITCHES, P50, P99, LONGEST, THREADS, MEMORY, AGREED, OTHERS];

const HANDSHAKE_COLUMNS: &[Column] = &[
    RATE,
    CPU,
    USER,
    SWITCHES,
    P50,
    P99,
    THREADS,
    MEMORY,
    column("full", "full handshakes", 0, Show::Median),
    column("resumed", "resumed", 0, Show::Median),
    AGREED,
    OTHERS,
];

const ARRIVAL_COLUMNS: &[Column] = &[
    RATE,
    CPU,
    column("p50", "p50 ms", 1, Show::Compared),
    column("p99", "p99 ms", 1, Show::Compared),
    column("longest", "last ms", 1, Show::Compared),
    THREADS,
    MEMORY,
    OTHERS,
];

const HELD_COLUMNS: &[Column] = &[
    column("per connection", "RSS KiB/connection", 2, Show::Compared),
    MEMORY,
    column("threads before", "threads before", 0, Show::Median),
    THREADS,
    column("held", "held on both sides", 0, Show::Median),
];

const TLS: &[Asked] = &[
    asked("ours", "live_ours", "https", "/plaintext"),
    asked("actix-web", "tls_actix", "https", "/plaintext"),
    asked("axum", "tls_axum", "https", "/plaintext"),
];

const ECHO: &[Asked] = &[
    asked("ours", "live_ours", "ws", "/echo"),
    asked("tokio-tungstenite", "ws_tungstenite", "ws", "/"),
    asked("gorilla/websocket", "ws_go", "ws", "/"),
    asked("ws on Node", "ws_node", "ws", "/"),
];

const DEFLATE: &[Asked] = &[
    asked("ours", "live_ours", "ws", "/deflate"),
    asked("gorilla/websocket", "ws_go_deflate", "ws", "/"),
    asked("ws on Node", "ws_node_deflate", "ws", "/"),
];

const ROOM: &[Asked] = &[
    asked("ours", "live_ours", "ws", "/room"),
    asked("a raw loop on two threads", "live_raw", "ws", "/"),
    asked("a raw loop on one thread", "live_raw_single", "ws", "/"),
];

const FEED: &[Asked] = &[
    asked("ours", "live_ours", "http+sse", "/feed"),
    asked("a raw loop on two threads (WebSocket)", "live_raw", "ws", "/"),
    asked("a raw loop on one thread (WebSocket)", "live_raw_single", "ws", "/"),
];

const SILENT: &[Asked] = &[
    asked("ours, HTTP", "live_ours", "http", "/plaintext"),
    asked("ours, WebSocket", "live_ours", "ws", "/quiet"),
    asked("ours, events", "live_ours", "http+sse", "/quiet_feed"),
    asked("ours, TLS", "live_ours", "https", "/plaintext"),
    asked("axum, TLS", "tls_axum", "https", "/plaintext"),
    asked("actix-web, TLS", "tls_actix", "https", "/plaintext"),
];

/// An echo with another number of connections and another length.
macro_rules! echo {
    ($connections:literal, $bytes:literal) => {
        Question {
            group: Some("websocket_sizes"),
            ..question(
                concat!("websocket_", $bytes, "_", $connections),
                concat!(
                    "A message of ",
                    $bytes,
                    " bytes and its echo, connections: ",
                    $connections
                ),
                ECHO,
                &[concat!("-c", $connections), concat!("-l", $bytes), "-t1"],
                COLUMNS,
                Kind::Asking,
            )
        }
    };
}

/// A broadcast of another length.
macro_rules! broadcast {
    ($group:literal, $who:ident, $connections:literal, $bytes:literal) => {
        Question {
            group: Some($group),
            broadcast_bytes: Some($bytes),
            ..question(
                concat!($group, "_", $bytes),
                concat!("A broadcast of ", $bytes, " bytes, connections: ", $connections),
                $who,
                &[concat!("-c", $connections), "-t1", "--warmup=5s"],
                ARRIVAL_COLUMNS,
                Kind::Receiving,
            )
        }
    };
}

pub const QUESTIONS: &[Question] = &[
    question(
        "websocket_echo",
        "What does a message of 100 bytes and its echo cost, on 100 WebSockets?",
        ECHO,
        &["-c100", "-l100", "-t1"],
        COLUMNS,
        Kind::Asking,
    ),
    question(
        "websocket_deflate",
        "The same with permessage-deflate.",
        DEFLATE,
        &["-c100", "-l100", "-t1", "--deflate"],
        COLUMNS,
        Kind::Asking,
    ),
    question(
        "broadcast",
        "How long does a broadcast of 1 KiB need to 10,000 WebSockets? Twice a second; the times \
         are from the call to the arrival of each message, and \"last\" is the longest of all \
         broadcasts of the run. The raw loop calls `send` once for each socket.",
        ROOM,
        &["-c10000", "-t1", "--warmup=5s"],
        ARRIVAL_COLUMNS,
        Kind::Receiving,
    ),
    question(
        "events",
        "The same by server-sent events.",
        FEED,
        &["-c10000", "-t1", "--warmup=5s"],
        ARRIVAL_COLUMNS,
        Kind::Receiving,
    ),
    question(
        "tls_plain64",
        "What does a small request cost over TLS, on 64 connections?",
        TLS,
        &["-c64", "-t1", "--insecure"],
        TLS_COLUMNS,
        Kind::Asking,
    ),
    question(
        "tls_handshakes",
        "What does a full handshake cost, with one request each?",
        TLS,
        &["-c16", "-t1", "--insecure", "--no-keepalive", "--no-resumption"],
        HANDSHAKE_COLUMNS,
        Kind::FullHandshakes,
    ),
    question(
        "tls_resumed",
        "And a resumed one?",
        TLS,
        &["-c16", "-t1", "--insecure", "--no-keepalive"],
        HANDSHAKE_COLUMNS,
        Kind::ResumedHandshakes,
    ),
    question(
        "held",
        "What do 10,000 connections cost that are open and say nothing, beyond the first ones? \
         Those of HTTP have asked once. The memory is read while the kernel counts all of them \
         as established, and accepted by the server.",
        SILENT,
        &[],
        HELD_COLUMNS,
        Kind::Silent,
    ),
    echo!(1, 16),
    echo!(1, 100),
    echo!(1, 1024),
    echo!(1, 16384),
    echo!(1, 262144),
    echo!(100, 16),
    echo!(100, 1024),
    echo!(100, 16384),
    echo!(100, 262144),
    echo!(1000, 16),
    echo!(1000, 100),
    echo!(1000, 1024),
    echo!(1000, 16384),
    echo!(1000, 262144),
    broadcast!("broadcast_sizes", ROOM, 10000, 100),
    broadcast!("broadcast_sizes", ROOM, 1000, 16384),
    broadcast!("broadcast_sizes", ROOM, 100, 262144),
    broadcast!("events_sizes", FEED, 10000, 100),
    broadcast!("events_sizes", FEED, 1000, 16384),
    broadcast!("events_sizes", FEED, 100, 262144),
];
