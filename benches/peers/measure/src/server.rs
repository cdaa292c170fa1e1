//! The servers that can be measured, and what each is made for.

use std::path::PathBuf;

/// Where a server comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A package of this workspace.
    Package(&'static str),
    /// An example of the main workspace, and the package whose dependencies are its own.
    Example { name: &'static str, package: &'static str },
    /// Not Rust: a folder below `servers/` whose `build.sh` makes the server.
    Foreign(&'static str),
    /// A binary that was built before, such as ours before a change.
    Binary(PathBuf),
}

/// How a server must be told that a handler blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// It must be marked: `/sleep` is, `/sleep_unmarked` is not.
    Marked,
    /// A sleep can be marked, work cannot: it stops a worker.
    Cooperative,
    /// Nothing is marked: `/sleep` is a plain blocking handler.
    Plain,
    /// It has no answer to a blocking handler: nothing of the kind is asked of it.
    Never,
}

/// What a server is not made for, so that it is not asked.
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
    /// What follows the address on its command line.
    pub arguments: &'static [&'static str],
    pub blocking: Blocking,
    pub lacks: &'static [Lack],
    /// The packages whose versions say what it is.
    pub versions: &'static [&'static str],
}

/// The name of the reference in the reports and on the command line.
pub const REFERENCE: &str = "raw_httparse";

/// Our framework with 200 routes and two middlewares.
pub const ROUTES: &str = "framework_routes";

/// The peer that sleeping handlers are compared with.
pub const MAY: &str = "may_server";

/// The peer that computing handlers are compared with.
pub const ACTIX: &str = "actix_server";

const NOTHING: &[Lack] = &[];

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
            package("khttp_server", Plain, NOTHING, &["khttp"]),
            Self {
                name: "khttp_threads".to_owned(),
                arguments: &["threads"],
                ..package("khttp_server", Plain, NOTHING, &[])
            },
            package("tiny_http_server", Plain, NOTHING, &["tiny_http"]),
            package("rouille_server", Plain, NOTHING, &["rouille"]),
            package("astra_server", Plain, NOTHING, &["astra"]),
            foreign("go_net_http", "go", Plain, NOTHING),
            foreign("go_fasthttp", "go", Plain, NOTHING),
            foreign("node_http", "node_http", Cooperative, NOTHING),
            foreign("express", "express", Cooperative, NOTHING),
            foreign("nginx", "nginx", Never, &[Lack::Bodies, Lack::Json]),
        ]
    }

    /// The server of this name, or `name=path` for a binary that behaves like ours.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some((name, path)) = name.split_once('=') {
            return Ok(Self {
                name: name.to_owned(),
                source: Source::Binary(PathBuf::from(path)),
                arguments: &[],
                blocking: Blocking::Plain,
                lacks: NOTHING,
                versions: &[],
            });
        }
        let all = Self::all();
        let known: Vec<_> = all.iter().map(|server| server.name.clone()).collect();
        all.into_iter().find(|server| server.name == name).ok_or_else(|| {
            format!("no server is called {name}; there are {}, and name=path/to/binary", known.join(", "))
        })
    }

    pub fn can(&self, lack: Lack) -> bool {
        !self.lacks.contains(&lack)
    }

    /// Whether callgrind can run it: machine code, and one process.
    pub fn is_rust(&self) -> bool {
        !matches!(self.source, Source::Foreign(_))
    }

    /// Whether it is ours, so that a chart can point at it.
    pub fn is_ours(name: &str) -> bool {
        ["ours", "framework", ROUTES].contains(&name)
    }
}

fn package(
    name: &'static str,
    blocking: Blocking,
    lacks: &'static [Lack],
    versions: &'static [&'static str],
) -> Server {
    Server { name: name.to_owned(), source: Source::Package(name), arguments: &[], blocking, lacks, versions }
}

fn example(name: &str, example: &'static str, package: &'static str) -> Server {
    Server {
        name: name.to_owned(),
        source: Source::Example { name: example, package },
        arguments: &[],
        blocking: Blocking::Plain,
        lacks: NOTHING,
        versions: &[],
    }
}

fn foreign(name: &str, folder: &'static str, blocking: Blocking, lacks: &'static [Lack]) -> Server {
    Server {
        name: name.to_owned(),
        source: Source::Foreign(folder),
        arguments: &[],
        blocking,
        lacks,
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
