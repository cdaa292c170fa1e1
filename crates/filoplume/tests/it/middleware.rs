//! The middleware in the box, and the onion itself.

mod bodies;
mod compression;
mod cors;
mod limits;
mod logger;
mod onion;
mod redis;
mod redis_server;

use std::net::SocketAddr;

use filoplume::prelude::*;
use filoplume::{AppService, Peer};
use filoplume_runtime::answer_in_process;

/// What an app answers to a peer, as text.
fn ask(service: &AppService, peer: &str, request: &str) -> String {
    let peer: SocketAddr = peer.parse().unwrap();
    let answer = answer_in_process(service, Peer::Tcp(peer), request.as_bytes(), &ServerConfig::default());
    String::from_utf8_lossy(&answer).into_owned()
}

/// The mistakes for which an app does not start.
fn mistakes(app: App) -> String {
    format!("{:?}", app.build().expect_err("the app has a mistake"))
}
