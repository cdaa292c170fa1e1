//! The buckets of all clients in Redis, for several instances.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{ErrorKind, RedisError, RedisResult};

use super::bucket::{Bucket, Decision};
use crate::core::error::{Error, Result};
use crate::redis_pool::{Connection, RedisPool};

/// Timeout for connecting to Redis, and for a response. Redis normally answers in less than a
/// millisecond.
const TIMEOUT: Duration = Duration::from_millis(250);

/// How long Redis is not used after a failure. Otherwise each request would wait for the timeout.
const PAUSE: Duration = Duration::from_secs(1);

/// [`Bucket::take`] as an atomic step for all instances. The clock of Redis counts, because the
/// clocks of the instances may differ. Times are in microseconds, which a Lua number can hold for
/// centuries. The script returns whether the request is allowed, and when the bucket is full.
const SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = tonumber(ARGV[1])
local span = tonumber(ARGV[2])
local ahead = tonumber(redis.call('GET', KEYS[1]) or now) - now
if ahead < 0 then ahead = 0 end
if ahead > span then ahead = span end
if ahead + interval > span then return {0, math.ceil(ahead)} end
ahead = ahead + interval
redis.call('SET', KEYS[1], string.format('%.3f', now + ahead), 'PX', math.ceil(ahead / 1000))
return {1, math.ceil(ahead)}
";

/// Counts that several instances share through Redis, for
/// [`RateLimit::redis`](super::RateLimit::redis).
///
/// Each request is one call of a script, which is atomic. A request of an IPv6 client needs a
/// second call, for its network. Connections are reused, and replaced after a failure. If Redis
/// does not answer within [the timeout](Self::timeout), it is not used for a second.
/// [`when_it_fails`](Self::when_it_fails) decides what happens to requests in that time.
///
/// ```no_run
/// use filoplume::middleware::{RateLimit, RedisCounters};
/// use filoplume::prelude::*;
/// use std::time::Duration;
///
/// let counters =
///     RedisCounters::new("redis://10.0.0.5/").timeout(Duration::from_millis(100));
/// let app = App::new().get("/", || "hi").with(RateLimit::per_second(10).redis(counters));
/// ```
pub struct RedisCounters {
    pool: std::result::Result<RedisPool, String>,
    /// The hash of the script, once Redis has it.
    script: Mutex<Option<Arc<str>>>,
    when_it_fails: WhenRedisFails,
    /// When Redis may be used again after a failure.
    paused_until: Mutex<Option<Instant>>,
}

/// What happens to requests while Redis is not available.
///
/// ```no_run
/// use filoplume::middleware::{RateLimit, RedisCounters, WhenRedisFails};
///
/// // Refuse logins rather than allow unlimited guesses.
/// let counters =
///     RedisCounters::new("redis://10.0.0.5/").when_it_fails(WhenRedisFails::Refuse);
/// let limit = RateLimit::per_minute(6).name("login").redis(counters);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenRedisFails {
    /// Each instance counts separately. The default.
    #[default]
    CountHere,
    /// All requests are allowed.
    Allow,
    /// All requests are refused with `503`.
    Refuse,
}

impl RedisCounters {
    /// Returns counters in the Redis with this URL. An app with an invalid URL does not start. If
    /// Redis cannot be reached, the app starts and tries again later.
    pub fn new(url: impl AsRef<str>) -> Self {
        let pool = RedisPool::new(url.as_ref(), TIMEOUT);
        Self {
            pool: pool.map_err(|mistake| format!("RateLimit: {mistake}")),
            script: Mutex::new(None),
            when_it_fails: WhenRedisFails::default(),
            paused_until: Mutex::new(None),
        }
    }

    /// Sets the timeout for connecting to Redis, and for a response. Default: 250 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let Ok(pool) = &mut self.pool {
            pool.set_timeout(timeout);
        }
        self
    }

    /// Sets what happens to requests while Redis is not available. Default: each instance counts
    /// separately.
    #[must_use]
    pub fn when_it_fails(mut self, when_it_fails: WhenRedisFails) -> Self {
        self.when_it_fails = when_it_fails;
        self
    }

    pub(super) fn mistake(&self) -> Option<&str> {
        self.pool.as_ref().err().map(String::as_str)
    }

    /// Takes a token from the bucket with this name. `count_here` takes a token in this process.
    pub(super) fn take(
        &self,
        key: &[u8],
        bucket: &Bucket,
        count_here: impl FnOnce() -> Decision,
    ) -> Result<Decision> {
        if !self.is_paused() {
            match self.ask(key, bucket) {
                Ok((is_allowed, ahead_micros)) => {
                    // Other requests may have failed and begun a pause meanwhile, but Redis
                    // answers.
                    self.paused_until.lock().take();
                    return Ok(bucket.decision(is_allowed == 1, ahead_micros.saturating_mul(1000)));
                }
                Err(error) => self.pause(&error),
            }
        }
        match self.when_it_fails {
            WhenRedisFails::CountHere => Ok(count_here()),
            WhenRedisFails::Allow => Ok(bucket.decision(true, 0)),
            WhenRedisFails::Refuse => {
                Err(Error::unavailable("the rate limit cannot be checked at the moment")
                    .with_known_header("retry-after", PAUSE.as_secs().to_string()))
            }
        }
    }

    fn is_paused(&self) -> bool {
        self.paused_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Stops using Redis for a while. Of the requests that fail together, one is logged.
    fn pause(&self, error: &RedisError) {
        let until = self.paused_until.lock().replace(Instant::now() + PAUSE);
        if until.is_none_or(|until| until <= Instant::now()) {
            tracing::warn!(%error, "Redis is not available for the counts of a rate limit");
        }
    }

    /// Runs the script. It may run twice, and then takes one token too many at worst.
    fn ask(&self, key: &[u8], bucket: &Bucket) -> RedisResult<(u8, u64)> {
        let pool = self.pool.as_ref().map_err(|mistake| {
            RedisError::from((ErrorKind::InvalidClientConfig, "no client", mistake.clone()))
        })?;
        pool.ask(|connection| match self.run(connection, key, bucket) {
            // A restarted Redis does not have the script.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                *self.script.lock() = None;
                self.run(connection, key, bucket)
            }
            answer => answer,
        })
    }

    fn run(
        &self,
        connection: &mut Connection,
        key: &[u8],
        bucket: &Bucket,
    ) -> RedisResult<(u8, u64)> {
        let known = self.script.lock().clone();
        let script: Arc<str> = match known {
            Some(script) => script,
            None => {
                let loaded: String =
                    redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(connection)?;
                let loaded = Arc::from(loaded);
                *self.script.lock() = Some(Arc::clone(&loaded));
                loaded
            }
        };
        let micros = |nanos: u64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
        redis::cmd("EVALSHA")
            .arg(&*script)
            .arg(1)
            .arg(key)
            .arg(micros(bucket.interval_nanos()))
            .arg(micros(bucket.span_nanos()))
            .query(connection)
    }
}

impl From<&str> for RedisCounters {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for RedisCounters {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl fmt::Debug for RedisCounters {
    // Without the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCounters")
            .field("when_it_fails", &self.when_it_fails)
            .finish_non_exhaustive()
    }
}
