//! The buckets of all clients, in Redis: for several instances.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Client, Connection, RedisError, RedisResult};

use super::bucket::{Bucket, Verdict};
use crate::error::{Error, Result};

/// Connections that are kept while nobody uses them. More are made when more threads ask at once.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// How long Redis may take to connect, and to answer. It takes less than a millisecond, or something is wrong.
const TIMEOUT: Duration = Duration::from_millis(250);

/// How long Redis is not asked after it failed: otherwise each request would wait for the timeout.
const PAUSE: Duration = Duration::from_secs(1);

/// [`Bucket::take`], in one step for all who ask Redis. Its clock counts, so that those of the instances may differ;
/// in microseconds, which a Lua number holds for centuries. Returns whether the request is allowed, and when the
/// bucket is full.
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

/// Counts that several instances share through Redis, for [`RateLimit::redis`](super::RateLimit::redis).
///
/// Each request is one call of a script, which is atomic. Connections are kept, and made anew when they have failed.
/// A Redis that does not answer within [the timeout](Self::timeout) is not asked for a second; what happens meanwhile
/// is up to [`when_it_fails`](Self::when_it_fails).
///
/// ```no_run
/// use std::time::Duration;
/// use filoplume::middleware::{RateLimit, RedisCounters};
/// use filoplume::prelude::*;
///
/// let counters = RedisCounters::new("redis://10.0.0.5/").timeout(Duration::from_millis(100));
/// let app = App::new().get("/", || "hi").with(RateLimit::per_second(10).redis(counters));
/// ```
pub struct RedisCounters {
    client: std::result::Result<Client, String>,
    timeout: Duration,
    when_it_fails: WhenRedisFails,
    idle: Mutex<Vec<Connected>>,
    /// When Redis may be asked again after it failed.
    paused_until: Mutex<Option<Instant>>,
}

/// What happens to requests while Redis cannot be asked.
///
/// ```no_run
/// use filoplume::middleware::{RateLimit, RedisCounters, WhenRedisFails};
///
/// // Rather nobody logs in than everybody guesses.
/// let counters = RedisCounters::new("redis://10.0.0.5/").when_it_fails(WhenRedisFails::Refuse);
/// let limit = RateLimit::per_minute(6).name("login").redis(counters);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenRedisFails {
    /// Each instance counts for itself. The default.
    #[default]
    CountHere,
    /// All are let in.
    Allow,
    /// All are refused with `503`.
    Refuse,
}

/// A connection that knows the script.
struct Connected {
    connection: Connection,
    script: String,
}

impl RedisCounters {
    /// Returns counters in the Redis with this URL. An app with one that cannot be understood does not start; one that
    /// cannot be reached is asked again later.
    pub fn new(url: impl AsRef<str>) -> Self {
        let client = Client::open(url.as_ref());
        Self {
            client: client.map_err(|error| format!("RateLimit: the URL of Redis cannot be used: {error}")),
            timeout: TIMEOUT,
            when_it_fails: WhenRedisFails::default(),
            idle: Mutex::new(Vec::new()),
            paused_until: Mutex::new(None),
        }
    }

    /// Sets how long Redis may take to connect, and then to answer. Default: 250 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        // Zero would be none at all.
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets what happens to requests while Redis cannot be asked. Default: each instance counts for itself.
    #[must_use]
    pub fn when_it_fails(mut self, when_it_fails: WhenRedisFails) -> Self {
        self.when_it_fails = when_it_fails;
        self
    }

    pub(super) fn mistake(&self) -> Option<&str> {
        self.client.as_ref().err().map(String::as_str)
    }

    /// Takes a token of the bucket with this name. `count_here` takes one of this process.
    pub(super) fn take(
        &self,
        key: &[u8],
        bucket: &Bucket,
        count_here: impl FnOnce() -> Verdict,
    ) -> Result<Verdict> {
        if !self.is_paused() {
            match self.ask(key, bucket) {
                Ok((is_allowed, ahead_micros)) => {
                    return Ok(bucket.verdict(is_allowed == 1, ahead_micros.saturating_mul(1000)));
                }
                Err(error) => {
                    tracing::warn!(%error, "Redis cannot be asked for the counts of a rate limit");
                    *self.paused_until.lock() = Some(Instant::now() + PAUSE);
                }
            }
        }
        match self.when_it_fails {
            WhenRedisFails::CountHere => Ok(count_here()),
            WhenRedisFails::Allow => Ok(bucket.verdict(true, 0)),
            WhenRedisFails::Refuse => {
                Err(Error::unavailable("it cannot be said whether this request is one too many")
                    .with_known_header("retry-after", PAUSE.as_secs().to_string()))
            }
        }
    }

    fn is_paused(&self) -> bool {
        self.paused_until.lock().is_some_and(|until| Instant::now() < until)
    }

    fn ask(&self, key: &[u8], bucket: &Bucket) -> RedisResult<(u8, u64)> {
        let kept = self.idle.lock().pop();
        if let Some(mut connected) = kept {
            let answer = connected.ask(key, bucket);
            match answer {
                Ok(answer) => {
                    self.keep(connected);
                    return Ok(answer);
                }
                // Not the connection's fault: another one would hear the same. But a Redis that was begun
                // anew has closed its connections, or does not know the script any more.
                Err(error) if error.is_timeout() => return Err(error),
                Err(_) => {
                    // The others are as old as this one.
                    self.idle.lock().clear();
                }
            }
        }
        let mut connected = self.connect()?;
        let answer = connected.ask(key, bucket)?;
        self.keep(connected);
        Ok(answer)
    }

    fn connect(&self) -> RedisResult<Connected> {
        let client = self.client.as_ref().map_err(|mistake| {
            RedisError::from((redis::ErrorKind::InvalidClientConfig, "no client", mistake.clone()))
        })?;
        let mut connection = client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        let script = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(&mut connection)?;
        Ok(Connected { connection, script })
    }

    fn keep(&self, connected: Connected) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connected);
        }
    }
}

impl Connected {
    fn ask(&mut self, key: &[u8], bucket: &Bucket) -> RedisResult<(u8, u64)> {
        let micros = |nanos: u64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
        redis::cmd("EVALSHA")
            .arg(&self.script)
            .arg(1)
            .arg(key)
            .arg(micros(bucket.interval_nanos()))
            .arg(micros(bucket.span_nanos()))
            .query(&mut self.connection)
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
    // Without the URL: there may be a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCounters").field("when_it_fails", &self.when_it_fails).finish_non_exhaustive()
    }
}
