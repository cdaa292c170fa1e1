//! Sessions in Redis.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, cmd, pipe};

use super::{SessionOwner, SessionStore};
use crate::core::error::{Error, Result};
use crate::redis_pool::{Connection, RedisPool, query_all};

/// Timeout for connecting, and for each command.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a session of a visitor is kept until a client presents it. A browser that accepts
/// cookies does so with its next request. So a flood of new sessions fills the server with the
/// sessions of an hour, and not of a day.
const UNPRESENTED_TIME: Duration = Duration::from_secs(3600);

/// Replaces a record if it is unchanged. Redis runs a script atomically.
const REPLACE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 else return 0 end";

/// Sessions in Redis or a compatible server, for several instances that share them.
///
/// ```no_run
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::session::RedisStore;
///
/// let sessions = Sessions::new(
///     RedisStore::connect("redis://127.0.0.1/")?,
///     Key::from_env("APP_KEY")?,
/// );
/// # Ok::<(), filoplume::Error>(())
/// ```
///
/// If a connection is broken, the command is repeated once on a new one. The timeout for each
/// response of the server is two seconds. A request whose session cannot be read or written because
/// Redis is too slow, is full, or cannot be reached, is answered with `503`. While Redis does not
/// answer at all, one request at a time waits for it, and all others get their `503` at once.
///
/// Redis removes sessions when they expire. A session of a visitor expires after an hour, or after
/// its own lifetime if that is shorter, until a client presents it. From then on it has its whole
/// lifetime, like those of users who [logged in](super::Session::log_in) have from the start. So a
/// flood of new sessions holds memory for an hour. `maxmemory` of the server bounds that memory.
/// With the `maxmemory-policy` `volatile-ttl`, the sessions that expire soonest are evicted first:
/// the new ones, and then those that have not been used for the longest time.
///
/// TLS is not supported: use a tunnel, a Unix socket, or your own store.
pub struct RedisStore {
    pool: RedisPool,
    prefix: String,
}

impl RedisStore {
    /// Connects to a server: `redis://[user:password@]host[:port][/database]`, or `unix:///path`.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the server does not answer.
    pub fn connect(url: &str) -> Result<Self> {
        let pool = RedisPool::new(url, TIMEOUT).map_err(Error::start_up)?;
        let store = Self { pool, prefix: "filoplume:session:".to_owned() };
        store.query::<()>(&cmd("PING")).map_err(|error| {
            let address = store.pool.address();
            Error::start_up(format!("the Redis server at {address} does not answer: {error}"))
        })?;
        Ok(store)
    }

    /// Sets the prefix of the keys of sessions. Default: `filoplume:session:`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the timeout for connecting, and for each command. Default: 2 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.pool.set_timeout(timeout);
        self
    }

    fn key(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }

    /// Runs a command, which may run twice.
    fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        self.ask(|connection| command.query(connection))
    }

    fn ask<T>(&self, ask: impl Fn(&mut Connection) -> RedisResult<T>) -> Result<T> {
        self.pool.ask(ask).map_err(|source| self.error(source))
    }

    /// Returns a `503` if Redis cannot be reached or is too slow. Its address is among the causes,
    /// which clients do not see.
    fn error(&self, source: RedisError) -> Error {
        let address = self.pool.address();
        let message = if source.is_timeout() {
            let timeout = self.pool.timeout();
            format!("the session store, Redis at {address}, did not answer within {timeout:?}")
        } else if source.is_io_error() || source.is_unrecoverable_error() {
            format!("the session store, Redis at {address}, is not available")
        } else if is_temporary(&source) {
            format!("the session store, Redis at {address}, refuses the command for now")
        } else {
            return source.into();
        };
        Error::unavailable("the sessions are not available at the moment")
            .with_source(Unavailable { message, source })
    }
}

/// Returns whether an error is temporary: Redis cannot serve the command now, because its memory or
/// its disk is full, or because it is loading, busy with a script, or a replica.
fn is_temporary(error: &RedisError) -> bool {
    let temporary = ["OOM", "MISCONF", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS"];
    // A script that cannot write is `ERR` in Redis before 7, followed by the text of the error.
    let is_full_in_script = || error.detail().is_some_and(|detail| detail.contains("OOM command"));
    error.code().is_some_and(|code| temporary.contains(&code)) || is_full_in_script()
}

/// Why Redis is not available, without secrets.
#[derive(Debug)]
struct Unavailable {
    message: String,
    source: RedisError,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Unavailable {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.source)
    }
}

/// Returns the lifetime for Redis, which accepts no zero.
fn milliseconds(keep_for: Duration) -> u64 {
    // A century: Redis rejects times that its clock cannot express.
    const MAX: u64 = 100 * 365 * 24 * 3600 * 1000;
    u64::try_from(keep_for.as_millis()).unwrap_or(MAX).clamp(1, MAX)
}

impl SessionStore for RedisStore {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.query(cmd("GET").arg(self.key(id)))
    }

    fn load_presented(&self, id: &str, keep_for: Duration) -> Result<Option<Vec<u8>>> {
        let key = self.key(id);
        let mut commands = pipe();
        commands.cmd("GET").arg(&key).cmd("PTTL").arg(&key);
        let (record, left): (Option<Vec<u8>>, i64) =
            self.ask(|connection| query_all(connection, &commands))?;
        // This also extends the time of a session that is about to end. That is harmless: the
        // record says when it ends.
        let is_short = u128::try_from(left).is_ok_and(|left| left <= UNPRESENTED_TIME.as_millis());
        if record.is_some() && is_short && keep_for > UNPRESENTED_TIME {
            self.query::<()>(cmd("PEXPIRE").arg(&key).arg(milliseconds(keep_for)))?;
        }
        Ok(record)
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        self.query(cmd("SET").arg(self.key(id)).arg(record).arg("PX").arg(milliseconds(keep_for)))
    }

    fn insert_for(
        &self,
        owner: SessionOwner,
        id: &str,
        record: &[u8],
        keep_for: Duration,
    ) -> Result<()> {
        let keep_for = match owner {
            SessionOwner::Visitor => keep_for.min(UNPRESENTED_TIME),
            SessionOwner::User => keep_for,
        };
        self.insert(id, record, keep_for)
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        let mut command = cmd("EVAL");
        command.arg(REPLACE).arg(1).arg(self.key(id)).arg(old).arg(new).arg(milliseconds(keep_for));
        self.query(&command)
    }

    fn remove(&self, id: &str) -> Result<()> {
        self.query(cmd("DEL").arg(self.key(id)))
    }
}

impl fmt::Debug for RedisStore {
    // The client is not printed: its address contains the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis refuses to keep something for no time.
    #[test]
    fn a_session_is_kept_for_at_least_a_millisecond() {
        for (keep_for, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(1500), 1500),
            (Duration::MAX, 100 * 365 * 24 * 3600 * 1000),
        ] {
            assert_eq!(milliseconds(keep_for), expected, "{keep_for:?}");
        }
    }
}
