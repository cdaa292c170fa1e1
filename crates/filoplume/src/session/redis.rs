//! Sessions in Redis.

use std::fmt;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, cmd};

use super::SessionStore;
use crate::core::error::{Error, Result};
use crate::redis_pool::RedisPool;

/// How long connecting, and each command, may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Replaces a record if it is still the one that is known. Redis runs a script as a whole.
const REPLACE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 else return 0 end";

/// Sessions in Redis, or what speaks its protocol: for several instances that share them.
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
/// Connections that broke are made anew, once for each command. Each answer of the server is waited
/// for two seconds at most. Sessions end by Redis's own expiry; a server that evicts keys ends them
/// early, by its `maxmemory-policy`. TLS is not in it: a tunnel or a Unix socket is, or a store of
/// your own.
pub struct RedisStore {
    pool: RedisPool,
    prefix: String,
}

impl RedisStore {
    /// Connects to a server: `redis://[user:password@]host[:port][/database]`, or `unix:///path`.
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or the server does not answer.
    pub fn connect(url: &str) -> Result<Self> {
        let pool = RedisPool::new(url, TIMEOUT).map_err(Error::start_up)?;
        let store = Self { pool, prefix: "filoplume:session:".to_owned() };
        store.query::<()>(&cmd("PING")).map_err(|error| {
            let address = store.pool.address();
            Error::start_up(format!("the Redis server at {address} does not answer: {error}"))
        })?;
        Ok(store)
    }

    /// Sets what stands before the ids of sessions. Default: `filoplume:session:`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long connecting, and each command, may take. Default: 2 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.pool.set_timeout(timeout);
        self
    }

    fn key(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }

    /// Runs a command that may run twice.
    fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        Ok(self.pool.ask(|connection| command.query(connection))?)
    }
}

/// Redis takes no zero.
fn milliseconds(keep_for: Duration) -> u64 {
    // A century: more than Redis's clock has room for is an error.
    const MAX: u64 = 100 * 365 * 24 * 3600 * 1000;
    u64::try_from(keep_for.as_millis()).unwrap_or(MAX).clamp(1, MAX)
}

impl SessionStore for RedisStore {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.query(cmd("GET").arg(self.key(id)))
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        self.query(cmd("SET").arg(self.key(id)).arg(record).arg("PX").arg(milliseconds(keep_for)))
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
    // Not the client: its address has the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
