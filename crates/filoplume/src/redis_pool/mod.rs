//! A pool of connections to a Redis server, for sessions and rate limits. Other users open
//! connections of their own.

mod answer;
mod connection;
mod silence;

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Client, FromRedisValue, IntoConnectionInfo, Pipeline, RedisResult, Value};

pub(crate) use self::answer::Event;
pub(crate) use self::connection::Connection;
use self::silence::Silence;

/// The maximum number of idle connections. If more threads use the pool at once, more connections
/// are opened.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// A time-out of zero would disable it.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// The address of a server, and the idle connections to it.
pub(crate) struct RedisPool {
    client: Client,
    timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    silence: Silence,
}

impl RedisPool {
    /// Returns a pool for a server. It does not connect yet.
    ///
    /// # Errors
    ///
    /// If the text is not the URL of a Redis server. The message does not include the URL, since
    /// that may contain a password.
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, String> {
        let client = url.into_connection_info().and_then(Client::open).map_err(|error| {
            let reason = error.category();
            format!("this is no URL of a Redis server, such as redis://127.0.0.1:6379/ ({reason})")
        })?;
        Ok(Self { client, timeout, idle: Mutex::default(), silence: Silence::default() })
    }

    /// Sets the time-out of connecting and of each response.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.max(TIMEOUT_MIN);
        // Idle connections still have the old time-out.
        self.idle.get_mut().clear();
    }

    /// Returns the time-out of connecting and of each response.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the address of the server without secrets.
    pub(crate) fn address(&self) -> impl fmt::Display {
        self.client.get_connection_info().addr().clone()
    }

    /// Sends a command. If it fails on an idle connection, which the server may have closed, it is
    /// sent again on a new connection. So use it only for commands that can be repeated. Both
    /// attempts and connecting share one time-out. If a command has waited for that long without an
    /// answer, and another one is trying again, this fails at once.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is too slow, or returns an error.
    pub(crate) fn ask<T>(&self, ask: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let Some(attempt) = self.silence.begin() else {
            let message = "it did not answer others before, and one command tries it again";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message).into());
        };
        let answer = self.ask_now(ask);
        match answer {
            // The system's text is "Resource temporarily unavailable", which tells nobody that the
            // server is slow.
            Err(error) if error.is_timeout() => {
                let message = format!("it did not answer within {:?}", self.timeout);
                Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
            }
            answer => {
                attempt.answered();
                answer
            }
        }
    }

    fn ask_now<T>(&self, ask: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let begun = Instant::now();
        let idle = self.idle.lock().pop();
        if let Some(mut connection) = idle {
            match ask(&mut connection) {
                Ok(value) => return Ok(self.keep(connection, value)),
                // Repeating a command does not help a slow server, and an error response would be
                // the same.
                Err(error)
                    if error.is_timeout()
                        || !(error.is_io_error() || error.is_unrecoverable_error()) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    // The other idle connections are as old, so they are probably broken too.
                    self.idle.lock().clear();
                    tracing::debug!(%error, "a connection to Redis broke, and is made anew");
                }
            }
        }
        let left = || self.timeout.saturating_sub(begun.elapsed()).max(TIMEOUT_MIN);
        let mut connection = Connection::open(self.client.get_connection_info(), left())?;
        connection.set_timeout(left());
        let value = ask(&mut connection)?;
        connection.set_timeout(self.timeout);
        Ok(self.keep(connection, value))
    }

    /// Opens a connection that is not part of the pool.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub(crate) fn open(&self) -> RedisResult<Connection> {
        Connection::open(self.client.get_connection_info(), self.timeout)
    }

    fn keep<T>(&self, connection: Connection, value: T) -> T {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
        value
    }
}

/// Sends several commands at once and returns their responses, all within one time-out.
///
/// # Errors
///
/// If one of the responses is an error or does not come. The connection must not be used again.
pub(crate) fn query_all<T: FromRedisValue>(
    connection: &mut Connection,
    commands: &Pipeline,
) -> RedisResult<T> {
    Ok(T::from_redis_value(Value::Array(connection.query_all(commands)?))?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Regression: the log said "Resource temporarily unavailable (os error 11)".
    #[test]
    fn the_error_of_a_silent_server_says_that_it_is_silent() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", silent.local_addr().unwrap());
        let pool = RedisPool::new(&url, Duration::from_millis(50)).unwrap();
        let error = pool.ask(|connection| redis::cmd("PING").exec(connection)).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!(error.to_string(), "it did not answer within 50ms");
    }

    /// Regression: each command of a pipeline waited for the time-out.
    #[test]
    fn several_commands_share_one_time_out() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", silent.local_addr().unwrap());
        let timeout = Duration::from_millis(200);
        let pool = RedisPool::new(&url, timeout).unwrap();
        let mut commands = redis::pipe();
        (0..50).for_each(|_| _ = commands.cmd("PING"));
        let begun = Instant::now();
        let error = pool.ask(|connection| query_all::<Vec<String>>(connection, &commands));
        assert!(error.unwrap_err().is_timeout());
        // All of them one after the other would take ten seconds.
        assert!(begun.elapsed() < timeout * 40, "{:?}", begun.elapsed());
    }
}
