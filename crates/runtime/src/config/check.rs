//! Values that no server can work with.

use filoplume_http1::Limits;

use super::ServerConfig;
use crate::error::{Kind, Result};

/// The most event loops. Twice as many as the cores that Linux supports.
const LOOPS_MAX: usize = 16 * 1024;

impl ServerConfig {
    /// Returns the first mistake as the error of the start. Smaller mistakes are corrected where
    /// the values are set.
    pub(crate) fn check(&self) -> Result<()> {
        self.mistake().map_or(Ok(()), |mistake| Err(Kind::Config { mistake }.into()))
    }

    fn mistake(&self) -> Option<&'static str> {
        // All loops are made at the start. Threads are made when they are needed, so any number of
        // them is fine.
        if self.event_loops > LOOPS_MAX {
            return Some("`ServerConfig::event_loops` is more than 16384");
        }
        if self.thread_name.contains('\0') {
            return Some("`ServerConfig::thread_name` has a zero byte");
        }
        if let Some(mistake) = self.time_of_zero() {
            return Some(mistake);
        }
        // Each request has a target, and at least the field `Host`.
        match self.limits {
            Limits { head_bytes_max: 0, .. } => {
                Some("with `Limits::head_bytes_max` of 0, every request would be refused")
            }
            Limits { target_bytes_max: 0, .. } => {
                Some("with `Limits::target_bytes_max` of 0, every request would be refused")
            }
            Limits { fields_max: 0, .. } => {
                Some("with `Limits::fields_max` of 0, every request would be refused")
            }
            _ => None,
        }
    }

    /// Other times may be zero: then nothing is waited for.
    fn time_of_zero(&self) -> Option<&'static str> {
        let rows = [
            (
                self.head_timeout,
                "with a `ServerConfig::head_timeout` of zero, no request would arrive in time",
            ),
            (
                self.content_timeout,
                "with a `ServerConfig::content_timeout` of zero, no content would arrive in time",
            ),
            (
                self.write_timeout,
                "with a `ServerConfig::write_timeout` of zero, responses would be broken off",
            ),
            #[cfg(feature = "tls")]
            (
                self.handshake_timeout,
                "with a `ServerConfig::handshake_timeout` of zero, no handshake would be in time",
            ),
        ];
        rows.iter().find(|(time, _)| time.is_zero()).map(|(_, mistake)| *mistake)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::PerClient;
    use crate::server::Server;

    #[test]
    fn defaults_and_presets_are_those_that_are_documented() {
        let seconds = Duration::from_secs;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let times = |config: &ServerConfig| {
            [
                config.head_timeout,
                config.keep_alive_timeout,
                config.content_timeout,
                config.write_timeout,
                config.blocking_stream_timeout.unwrap_or_default(),
            ]
        };
        let bounds = |config: &ServerConfig| {
            [
                config.bytes_per_second_min,
                config.buffered_content_bytes_max,
                config.content_bytes_max,
                config.unread_content_bytes_max,
            ]
        };
        let default = ServerConfig::default();
        assert_eq!(default.event_loops, cores);
        assert_eq!(times(&default), [10, 75, 30, 30, 120].map(seconds));
        assert_eq!(bounds(&default), [1 << 10, 1 << 20, 64 << 20, 256 << 10]);
        let strict = ServerConfig::strict();
        assert_eq!(times(&strict), [5, 10, 10, 10, 30].map(seconds));
        assert_eq!(bounds(&strict), [8 << 10, 64 << 10, 1 << 20, 64 << 10]);
        let behind_proxy = ServerConfig::behind_proxy();
        assert_eq!(times(&behind_proxy), [10, 600, 120, 120, 600].map(seconds));
        assert_eq!(bounds(&behind_proxy), [1 << 10, 1 << 20, 1 << 30, 256 << 10]);
    }

    /// With none, nothing could ever be served.
    #[test]
    fn a_number_that_must_not_be_zero_is_one_instead() {
        let set = |number: usize| {
            let config = ServerConfig::default()
                .event_loops(number)
                .threads_max(number)
                .queue_capacity(number)
                .connections_max(number)
                .connections_per_client_max(number);
            let PerClient::Bounded(per_client) = config.connections_per_client_max else {
                panic!("it is bounded");
            };
            [
                config.event_loops,
                config.threads_max,
                config.queue_capacity.unwrap_or_default(),
                config.connections_max,
                per_client,
            ]
        };
        assert_eq!(set(0), [1; 5]);
        assert_eq!([1, 2, 1000].map(set), [[1; 5], [2; 5], [1000; 5]]);
    }

    #[test]
    fn the_most_event_loops_are_allowed_and_one_more_is_not() {
        let mistake = |loops| ServerConfig::default().event_loops(loops).mistake();
        assert_eq!(mistake(LOOPS_MAX), None);
        assert!(mistake(LOOPS_MAX + 1).is_some());
    }

    #[test]
    fn a_server_with_an_impossible_setting_does_not_start() {
        let config = ServerConfig::default;
        let limits = |limits| config().limits(limits);
        let (none, some) = (0, Limits::default());
        let rows = [
            (config().event_loops(usize::MAX), "`ServerConfig::event_loops` is more than 16384"),
            (config().thread_name("a\0b"), "`ServerConfig::thread_name` has a zero byte"),
            (limits(Limits { head_bytes_max: none, ..some }), "`Limits::head_bytes_max` of 0"),
            (limits(Limits { target_bytes_max: none, ..some }), "`Limits::target_bytes_max` of 0"),
            (limits(Limits { fields_max: none, ..some }), "`Limits::fields_max` of 0"),
            (config().head_timeout(Duration::ZERO), "`ServerConfig::head_timeout` of zero"),
            (config().content_timeout(Duration::ZERO), "`ServerConfig::content_timeout` of zero"),
            (config().write_timeout(Duration::ZERO), "`ServerConfig::write_timeout` of zero"),
            #[cfg(feature = "tls")]
            (
                config().handshake_timeout(Duration::ZERO),
                "`ServerConfig::handshake_timeout` of zero",
            ),
        ];
        for (config, expected) in rows {
            let error = start(config).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn any_number_of_threads_is_fine() {
        let config = ServerConfig::default().event_loops(1).threads_max(usize::MAX);
        #[cfg(feature = "tls")]
        let config = config.handshakes_max(usize::MAX);
        start(config).expect("it starts").shutdown_handle().shutdown();
    }

    fn start(config: ServerConfig) -> Result<Server> {
        let server = Server::builder().bind("127.0.0.1:0")?.config(config).build()?;
        server.spawn(|_: crate::Request| "")?;
        Ok(server)
    }
}
