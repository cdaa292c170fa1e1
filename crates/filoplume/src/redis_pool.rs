//! Connections to a Redis server, kept and made anew: for sessions and rate limits.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Connection, IntoConnectionInfo, RedisResult};

/// Most connections that are kept while nobody needs them. More are opened when more threads ask at
/// once.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// A server, and the connections to it that nobody uses at the moment.
pub(crate) struct RedisPool {
    client: Client,
    timeout: Duration,
    idle: Mutex<Vec<Connection>>,
}

impl RedisPool {
    /// Returns the pool of a server. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// If this is no URL of a Redis server. The text does not quote it: there may be a password in
    /// it.
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, String> {
        let client = url.into_connection_info().and_then(|address| {
            // One answer less to wait for: that tells the server how this library is called.
            let settings = address.redis_settings().clone().set_skip_set_lib_name();
            Client::open(address.set_redis_settings(settings))
        });
        let client = client
            .map_err(|error| format!("this is no URL of a Redis server: {}", error.category()))?;
        Ok(Self { client, timeout, idle: Mutex::default() })
    }

    /// Sets how long connecting, and each answer, may take.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        // Zero would be none at all.
        self.timeout = timeout.max(Duration::from_millis(1));
        // They have the other one.
        self.idle.get_mut().clear();
    }

    /// Where the server is, without what is secret.
    pub(crate) fn address(&self) -> impl fmt::Display {
        self.client.get_connection_info().addr().clone()
    }

    /// Asks the server. What fails on a connection that lay idle, which the server may have closed
    /// since, is asked again on a new one: only for what may be done twice.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is too slow, or refuses.
    pub(crate) fn ask<T>(&self, ask: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let idle = self.idle.lock().pop();
        if let Some(mut connection) = idle {
            match ask(&mut connection) {
                Ok(value) => return Ok(self.keep(connection, value)),
                // A server that is slow is not helped by asking it again, and what it refuses it
                // would refuse again.
                Err(error)
                    if error.is_timeout()
                        || !(error.is_io_error() || error.is_unrecoverable_error()) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    // Those beside it are as old.
                    self.idle.lock().clear();
                    tracing::debug!(%error, "a connection to Redis broke, and is made anew");
                }
            }
        }
        let mut connection = self.open()?;
        let value = ask(&mut connection)?;
        Ok(self.keep(connection, value))
    }

    fn open(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }

    fn keep<T>(&self, connection: Connection, value: T) -> T {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
        value
    }
}
