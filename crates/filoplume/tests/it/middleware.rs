//! The middleware in the box, and the onion itself.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests, helpers included")]

mod allowed_hosts;
mod bodies;
mod compression;
mod cors;
mod limits;
mod logger;
mod onion;
mod redis;

use std::net::SocketAddr;

use filoplume::prelude::*;
use filoplume::testing::TestResponse;
use filoplume::{AppService, Peer};
use filoplume_runtime::answer_in_process;

/// What an app answers to a peer, as text.
fn ask(service: &AppService, peer: &str, request: &str) -> String {
    let peer: SocketAddr = peer.parse().unwrap();
    let answer =
        answer_in_process(service, Peer::Tcp(peer), request.as_bytes(), &ServerConfig::default());
    String::from_utf8_lossy(&answer).into_owned()
}

/// The mistakes for which an app does not start.
fn mistakes(app: App) -> String {
    format!("{:?}", app.build().expect_err("the app has a mistake"))
}

/// All that a response says of what it varies with.
fn vary(response: &TestResponse) -> String {
    response.headers_all("vary").collect::<Vec<_>>().join(", ")
}
