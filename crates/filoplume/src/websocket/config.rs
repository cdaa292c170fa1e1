//! The bounds on a socket, with the reasons for their defaults.

use std::time::Duration;

use filoplume_websocket::Limits;
#[cfg(feature = "websocket-deflate")]
use filoplume_websocket::{DeflateConfig, DeflateOptions};

/// Most bytes that may wait for a slow peer, the same as for a raw connection. A longer message is
/// accepted if nothing else waits, and a message of a room if no more than half of this waits. A
/// thousand peers that do not read hold half a gigabyte, because the output of each connection may
/// hold as much again. The server's memory budget bounds all sockets together.
pub(super) const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// Most rooms that a socket may be in. A client that chooses the names of its rooms makes the
/// server remember some 500 bytes for each, with a message of 14 bytes. The memory budget counts
/// them, and one socket must not use up the share of its client. People read a few dozen rooms.
pub(super) const ROOMS_MAX: usize = 1000;
/// Proxies and address translators forget connections that were silent for a minute.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(30);
/// A phone may need some seconds to wake up.
pub(super) const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// The answer to a close frame takes a round trip, and comes after everything that is already on
/// the way.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// A message that is arriving holds memory. At 35 KiB a second, the longest one arrives within this
/// time.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The bounds on one socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) limits: Limits,
    pub(super) unsent_bytes_max: usize,
    pub(super) rooms_max: usize,
    pub(super) times: Times,
    #[cfg(feature = "websocket-deflate")]
    pub(super) deflate: Option<(DeflateConfig, DeflateOptions)>,
}

/// How long a socket waits. This is the part of its bounds that it keeps while it is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) ping_interval: Duration,
    pub(super) pong_timeout: Duration,
    pub(super) close_timeout: Duration,
    pub(super) message_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            unsent_bytes_max: UNSENT_BYTES_MAX,
            rooms_max: ROOMS_MAX,
            times: Times {
                ping_interval: PING_INTERVAL,
                pong_timeout: PONG_TIMEOUT,
                close_timeout: CLOSE_TIMEOUT,
                message_timeout: MESSAGE_TIMEOUT,
            },
            #[cfg(feature = "websocket-deflate")]
            deflate: Some((DeflateConfig::default(), DeflateOptions::default())),
        }
    }
}
