//! Handlers that make real blocking calls: to Redis, PostgreSQL, SQLite and another HTTP server.

use crate::backends::Backend;
use crate::job::Job;
use crate::scenario::{Group, Scenario, load};
use crate::who::{Call, Who};

pub const REAL: Group = Group {
    name: "real",
    asks: "Handlers that call Redis, PostgreSQL, SQLite or another HTTP server, on 64 connections.",
    scenarios: ALL,
};

const ALL: &[Scenario] = &[
    calling(
        "real_redis_get",
        "Handlers that read a value from Redis.",
        &Call { backend: Backend::Redis, target: "/redis_get?key=4711", content: VALUE },
    ),
    calling(
        "real_redis_set",
        "Handlers that write a value to Redis.",
        &Call { backend: Backend::Redis, target: "/redis_set?key=4711", content: WRITTEN },
    ),
    calling(
        "real_postgres",
        "Handlers that read a row from PostgreSQL by its primary key.",
        &Call { backend: Backend::Postgres, target: "/postgres?key=4711", content: VALUE },
    ),
    calling(
        "real_sqlite_read",
        "Handlers that read a row from SQLite by its primary key.",
        &Call { backend: Backend::Sqlite, target: "/sqlite_read?key=4711", content: VALUE },
    ),
    calling(
        "real_sqlite_write",
        "Handlers that write a row to SQLite and commit it to the disk.",
        &Call { backend: Backend::Sqlite, target: "/sqlite_write?key=4711", content: WRITTEN },
    ),
    calling(
        "real_http",
        "Handlers that call another HTTP server, which answers after 1 ms.",
        &Call { backend: Backend::Http, target: "/http", content: "Hello, World!" },
    ),
];

const VALUE: &str = "value 4711";
const WRITTEN: &str = "written 4711";

const fn calling(name: &'static str, asks: &'static str, call: &'static Call) -> Scenario {
    load(name, asks, Who::Calling(call), |target| vec![Job::get(target, 64, 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    #[test]
    fn only_the_servers_with_backends_are_asked() {
        let labels: Vec<String> = Server::all()
            .iter()
            .flat_map(|server| ALL[0].entrants(server))
            .map(|entrant| entrant.label)
            .collect();
        assert_eq!(labels, ["backends_ours", "backends_actix (marked)", "backends_axum (marked)"]);
        let job = &ALL[5].printed_jobs()[0];
        assert_eq!((job.target.as_str(), job.connections, job.threads), ("/http", 64, 1));
    }
}
