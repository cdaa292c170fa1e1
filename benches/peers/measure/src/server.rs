//! The servers that can be measured, and the questions that each is made for.

use std::path::PathBuf;

/// Where a server comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A package of this workspace.
    Package(&'static str),
    /// An example of the main workspace, and the package whose dependencies are counted.
    Example { name: &'static str, package: &'static str },
    /// Not Rust: a folder below `servers/` whose `build.sh` makes the server.
    Foreign(&'static str),
    /// A binary that was built before, such as our server before a change.
    Binary(PathBuf),
}

/// How a server must be told that a handler blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// It must be marked: `/sleep` is, `/sleep_unmarked` is not.
    Marked,
    /// A sleep can be marked. Work cannot be marked, and stops a worker.
    Cooperative,
    /// Nothing is marked: `/sleep` is a plain blocking handler.
    Plain,
    /// The server has no way to run blocking handlers, so it is not asked for them.
    Never,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    Http,
    /// It sends back what it is sent.
    Echo,
    /// WebSocket or TLS: it is ready when it accepts connections.
    Other,
}

/// A family of questions. Each server is asked some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The questions for all servers that speak HTTP.
    Standard,
    /// Handlers that wait, for times from 50 µs to 100 ms.
    Waits,
    /// A handler that is quick except for some calls.
    Misses,
    /// Handlers that call other servers.
    Calls,
    /// Long-lived connections, which the mode of that name asks about, and no scenario.
    Live,
    Echo,
}

/// How a server is told where to listen, and on how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// `ADDRESS`, and the other arguments of the server.
    Address,
    /// `ADDRESS THREADS`
    AddressThreads,
    /// `-p PORT -t THREADS`, on this machine.
    Options,
}

/// A feature that a server does not have, so that it is not asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It does not honour `Connection: close`.
    Closing,
    /// It reads no bodies.
    Bodies,
    /// It serializes nothing.
    Json,
}

/// One server that can be measured.
#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    pub source: Source,
    /// The arguments after the address.
    pub arguments: &'static [&'static str],
    pub speech: Speech,
    pub launch: Launch,
    /// The maximum number of threads, for servers that have such an argument.
    pub threads_max: usize,
    pub blocking: Blocking,
    pub lacks: &'static [Lack],
    pub families: &'static [Family],
    /// The packages whose versions are reported for this server.
    pub versions: &'static [&'static str],
}

/// The name of the reference in the reports and on the command line.
pub const REFERENCE: &str = "raw_httparse";

/// The floor of the echo servers, which is the reference of the ratios in their tables.
pub const ECHO_REFERENCE: &str = "echo_epoll";

/// How many threads each peer gets unless a scenario says otherwise.
pub const WORKERS: usize = 2;

/// Our framework with 200 routes and two middlewares.
pub const ROUTES: &str = "framework_routes";

/// Our framework with handlers that call other servers.
pub const BACKENDS_OURS: &str = "backends_ours";

/// The peer that the servers with backends are compared with.
pub const BACKENDS_ACTIX: &str = "backends_actix";

/// The client libraries of the servers with backends.
const CLIENTS: &[&str] = &["redis", "postgres", "rusqlite", "r2d2", "ureq"];

/// The peer that sleeping handlers are compared with.
pub const MAY: &str = "may_server";

/// The peer that computing handlers are compared with.
pub const ACTIX: &str = "actix_server";

const NOTHING: &[Lack] = &[];

/// For servers whose timers count milliseconds, and for those that give each connection or each
/// handler a thread of a fixed pool.
const STANDARD: &[Family] = &[Family::Standard];

impl Server {
    /// Every server that is known by name, in the order of the reports.
    pub fn all() -> Vec<Self> {
        use Blocking::{Cooperative, Marked, Never, Plain};
        vec![
            package("raw_epoll", Never, &[Lack::Closing, Lack::Bodies, Lack::Json], &[]),
            package(REFERENCE, Never, NOTHING, &["httparse"]),
            example("ours", "bench_engine", "filoplume-runtime"),
            example("framework", "bench_server", "filoplume"),
            package(ROUTES, Never, &[Lack::Bodies, Lack::Json], &[]),
            package(MAY, Cooperative, &[Lack::Closing], &["may_minihttp", "may"]),
            package("hyper_server", Marked, NOTHING, &["hyper", "tokio"]),
            package("axum_server", Marked, NOTHING, &["axum"]),
            package(ACTIX, Marked, NOTHING, &["actix-web"]),
            package("ntex_server", Marked, NOTHING, &["ntex"]),
            package("feather_server", Cooperative, NOTHING, &["feather"]),
            package("khttp_server", Plain, NOTHING, &["khttp"]).asked(STANDARD),
            Self {
                name: "khttp_threads".to_owned(),
                arguments: &["threads"],
                ..package("khttp_server", Plain, NOTHING, &[]).asked(STANDARD)
            },
            package("tiny_http_server", Plain, NOTHING, &["tiny_http"]).asked(STANDARD),
            package("rouille_server", Plain, NOTHING, &["rouille"]).asked(STANDARD),
            package("astra_server", Plain, NOTHING, &["astra"]).asked(STANDARD),
            foreign("go_net_http", "go", Plain, NOTHING),
            foreign("go_fasthttp", "go", Plain, NOTHING),
            foreign("node_http", "node_http", Cooperative, NOTHING).asked(STANDARD),
            foreign("express", "express", Cooperative, NOTHING).asked(STANDARD),
            foreign("nginx", "nginx", Never, &[Lack::Bodies, Lack::Json]),
            package(BACKENDS_OURS, Plain, NOTHING, CLIENTS).asked(&[Family::Misses, Family::Calls]),
            package(BACKENDS_ACTIX, Marked, NOTHING, &["actix-web"]).asked(&[Family::Calls]),
            package("backends_axum", Marked, NOTHING, &["axum"]).asked(&[Family::Calls]),
            package("live_ours", Plain, NOTHING, &["rustls", "flate2"]).living(),
            package("live_raw", Never, NOTHING, &[]).living(),
            Self {
                name: "live_raw_single".to_owned(),
                ..package("live_raw", Never, NOTHING, &[]).living().told(&["1"])
            },
            foreign("live_nginx", "live_nginx", Never, NOTHING).living(),
            package("ws_tungstenite", Never, NOTHING, &["tokio-tungstenite"]).living(),
            foreign("ws_go", "ws_go", Never, NOTHING).living(),
            foreign("ws_go_deflate", "ws_go", Never, NOTHING).living().told(&["deflate"]),
            foreign("ws_node", "ws_node", Never, NOTHING).living(),
            foreign("ws_node_deflate", "ws_node", Never, NOTHING).living().told(&["deflate"]),
            package("tls_axum", Never, NOTHING, &["axum", "axum-server", "rustls"]).living(),
            package("tls_actix", Never, NOTHING, &["actix-web", "rustls"]).living(),
            package(ECHO_REFERENCE, Never, NOTHING, &[]).echoing(WORKERS),
            Self {
                launch: Launch::Options,
                ..example("echo_ours", "echo", "filoplume-runtime").echoing(WORKERS)
            },
            package("echo_tokio", Never, NOTHING, &["tokio"]).echoing(WORKERS),
            package("echo_may", Never, NOTHING, &["may"]).echoing(WORKERS),
            foreign("echo_libuv", "echo_c", Never, NOTHING).echoing(1),
            foreign("echo_asio", "echo_c", Never, NOTHING).echoing(1),
            foreign("echo_node", "echo_node", Never, NOTHING).echoing(1),
        ]
    }

    /// The server of this name, or `name=path` for a binary that behaves like ours.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some((name, path)) = name.split_once('=') {
            return Ok(plain(name, Source::Binary(PathBuf::from(path))));
        }
        let all = Self::all();
        let known: Vec<_> = all.iter().map(|server| server.name.clone()).collect();
        all.into_iter().find(|server| server.name == name).ok_or_else(|| {
            format!(
                "no server is called {name}; there are {}, and name=path/to/binary",
                known.join(", ")
            )
        })
    }

    /// Our example that sends responses without reading requests. Only the claims use it, because
    /// it does not answer requests.
    pub fn flood() -> Self {
        Self { launch: Launch::Options, ..example("flood", "flood", "filoplume-runtime") }
    }

    /// The HTTP backend of the servers with backends. No scenario asks it.
    pub fn slow_http() -> Self {
        package("slow_http", Blocking::Never, NOTHING, &[]).asked(&[])
    }

    /// Express as it is usually started: one process.
    pub fn express_alone() -> Self {
        let name = "express_alone".to_owned();
        Self { name, arguments: &["1"], ..foreign("express", "express", Blocking::Never, NOTHING) }
    }

    /// Turns this into an echo server that takes its number of threads as an argument.
    fn echoing(self, threads_max: usize) -> Self {
        let families = &[Family::Echo];
        Self { speech: Speech::Echo, launch: Launch::AddressThreads, threads_max, families, ..self }
    }

    /// Turns this into a server of long-lived connections.
    fn living(self) -> Self {
        Self { speech: Speech::Other, families: &[Family::Live], ..self }
    }

    /// Adds arguments after the address.
    fn told(self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self }
    }

    /// Limits the questions to these families.
    fn asked(self, families: &'static [Family]) -> Self {
        Self { families, ..self }
    }

    pub fn can(&self, lack: Lack) -> bool {
        !self.lacks.contains(&lack)
    }

    /// Whether callgrind can run the server: it must be machine code in one process.
    pub fn is_rust(&self) -> bool {
        !matches!(self.source, Source::Foreign(_))
    }

    /// Whether only [`Mode::Live`](crate::args::Mode::Live) asks the server.
    pub fn is_living(&self) -> bool {
        self.families.contains(&Family::Live)
    }

    /// Whether a server is ours, so that a chart can highlight it.
    pub fn is_ours(name: &str) -> bool {
        ["ours", "framework", "echo_ours", "flood", "live_ours", ROUTES, BACKENDS_OURS]
            .contains(&name)
    }
}

fn package(
    name: &'static str,
    blocking: Blocking,
    lacks: &'static [Lack],
    versions: &'static [&'static str],
) -> Server {
    Server { blocking, lacks, versions, ..plain(name, Source::Package(name)) }
}

fn example(name: &str, example: &'static str, package: &'static str) -> Server {
    plain(name, Source::Example { name: example, package })
}

fn foreign(name: &str, folder: &'static str, blocking: Blocking, lacks: &'static [Lack]) -> Server {
    Server { blocking, lacks, ..plain(name, Source::Foreign(folder)) }
}

/// A server like ours: it takes its address, speaks HTTP, and needs no marks.
fn plain(name: &str, source: Source) -> Server {
    Server {
        name: name.to_owned(),
        source,
        arguments: &[],
        speech: Speech::Http,
        launch: Launch::Address,
        threads_max: WORKERS,
        blocking: Blocking::Plain,
        lacks: NOTHING,
        families: &[Family::Standard, Family::Waits, Family::Misses],
        versions: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_found_by_its_name() {
        for server in Server::all() {
            assert_eq!(Server::named(&server.name).unwrap().name, server.name);
        }
        assert!(
            Server::named("apache")
                .unwrap_err()
                .starts_with("no server is called apache; there are raw_epoll")
        );
    }

    #[test]
    fn a_binary_is_named_before_its_path() {
        let server = Server::named("before=/some/bench_engine").unwrap();
        assert_eq!(server.name, "before");
        assert!(matches!(server.source, Source::Binary(path) if path.ends_with("bench_engine")));
    }
}
