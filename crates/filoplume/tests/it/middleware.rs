//! The included middleware, and how middleware is nested.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests, helpers included")]

mod allowed_hosts;
mod bodies;
mod compression;
mod cors;
mod decompression;
mod jwt_algorithms;
mod limits;
mod logger;
mod logger_bodies;
mod logger_stderr;
mod mistakes;
mod onion;
mod overridden_methods;
mod read_contents;
mod redis;
mod slow_clients;

use std::net::SocketAddr;

use filoplume::prelude::*;
use filoplume::testing::TestResponse;
use filoplume::{AppService, Peer};
use filoplume_runtime::answer_in_process;

/// Returns the response of an app to a peer, as text.
fn ask(service: &AppService, peer: &str, request: &str) -> String {
    let peer: SocketAddr = peer.parse().unwrap();
    let answer =
        answer_in_process(service, Peer::Tcp(peer), request.as_bytes(), &ServerConfig::default());
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the mistakes that keep an app from starting.
fn mistakes(app: App) -> String {
    format!("{:?}", app.build().expect_err("the app has a mistake"))
}

/// Returns all values of `Vary`.
fn vary(response: &TestResponse) -> String {
    response.headers_all("vary").collect::<Vec<_>>().join(", ")
}
