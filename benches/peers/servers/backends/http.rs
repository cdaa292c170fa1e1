//! A call to another HTTP server, on connections that are kept.

use std::sync::LazyLock;

use ureq::Agent;

use crate::pool::CONNECTIONS;
use crate::{Error, place};

/// By default, ureq keeps three connections per host.
static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    let connections = CONNECTIONS as usize;
    let config = Agent::config_builder()
        .max_idle_connections(connections)
        .max_idle_connections_per_host(connections)
        .build();
    config.into()
});

/// The URL of the server, read once.
static URL: LazyLock<Result<String, String>> = LazyLock::new(|| {
    let address = place("HTTP_ADDRESS").map_err(|error| error.to_string())?;
    Ok(format!("http://{address}/"))
});

pub fn get() -> Result<String, Error> {
    let url = URL.as_ref().map_err(String::as_str)?;
    Ok(AGENT.get(url).call()?.body_mut().read_to_string()?)
}
