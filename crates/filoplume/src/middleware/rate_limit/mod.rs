//! A limit on the rate of requests per client.

mod bucket;
mod clients;
mod memory;
#[cfg(feature = "redis")]
mod redis_counters;

use std::fmt;
use std::time::Duration;

use filoplume_runtime::{Headers, Request, Response, StatusCode};

use self::bucket::{Bucket, Decision};
use self::clients::Client;
use self::memory::Memory;
#[cfg(feature = "redis")]
pub use self::redis_counters::{RedisCounters, WhenRedisFails};
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::middleware::concurrency_limit::whole_seconds;

/// Number of clients that are remembered: about 5 MiB.
const KEYS_MAX: usize = 100_000;

/// An IPv6 network of 48 bits has this many times the rate and the burst of a client. It has 65,536
/// clients, and hosting providers and tunnels give one to anyone. Phones of a mobile network share
/// such networks too, so a network does not count as one client.
const NETWORK_SHARE: u32 = 8;

/// Limits the number of requests per client and period. Further ones get a `429` with
/// `Retry-After`.
///
/// ```
/// use filoplume::middleware::RateLimit;
/// use filoplume::prelude::*;
///
/// let app =
///     App::new().post("/login", || "welcome").with(RateLimit::per_minute(6).burst(2));
/// let client = app.test();
/// client
///     .post("/login")
///     .send()
///     .assert_status(200)
///     .assert_header("x-ratelimit-remaining", "1");
/// client.post("/login").send().assert_status(200);
/// let refused = client.post("/login").send();
/// assert!(refused.assert_status(429).header("retry-after").is_some()); // at most 10 s
/// ```
///
/// Each client has a token bucket (GCRA). A request takes a token, and tokens return one by one at
/// the allowed rate. So a client that was idle can send [a burst](Self::burst) at once, but never
/// more than the rate over time.
///
/// **Clients** are identified by their address, behind the proxies that the app
/// [trusts](crate::App::trust_proxies). For IPv6 the first 64 bits count, because a client with one
/// address usually has them all. [`key`](Self::key) identifies clients in another way, such as by
/// API key.
///
/// **IPv6 networks** of 48 bits have a bucket as well, with eight times the rate and the burst of a
/// client. Such a network has 65,536 clients, and is given to anyone who asks for one. A request
/// needs a token of both buckets. Clients that are identified by a key need no token of a network.
///
/// **Memory** is bounded: [100,000 clients](Self::keys_max) are remembered, and as many networks.
/// If there are more, those that were idle the longest are forgotten. They have a full bucket when
/// they return, so no client is refused because of this bound.
///
/// **Several instances** count separately, unless they share their counts through Redis with
/// [`redis`](Self::redis).
///
/// The response headers `x-ratelimit-limit`, `-remaining` and `-reset` contain the size of the
/// bucket, the remaining tokens, and the seconds until it is full again. Clients know these names.
/// The IETF draft of `RateLimit` has changed its form several times. A refused client should follow
/// `Retry-After` (RFC 9110, 10.2.3) in any case.
pub struct RateLimit {
    bucket: Bucket,
    memory: Memory,
    /// The buckets of IPv6 networks of 48 bits.
    networks: Memory,
    key: Option<KeyOf>,
    name: String,
    says_headers: bool,
    #[cfg(feature = "redis")]
    redis: Option<RedisCounters>,
    mistakes: Vec<String>,
}

/// The owner of a bucket.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Client,
    /// An IPv6 network of 48 bits.
    Network,
}

type KeyOf = Box<dyn Fn(&Request) -> Option<String> + Send + Sync>;

impl RateLimit {
    /// Returns a limit of `requests` per second for each client.
    pub fn per_second(requests: u32) -> Self {
        Self::per(requests, Duration::from_secs(1))
    }

    /// Returns a limit of `requests` per minute for each client.
    pub fn per_minute(requests: u32) -> Self {
        Self::per(requests, Duration::from_secs(60))
    }

    /// Returns a limit of `requests` per `period` for each client. An app with a limit or a period
    /// of 0 does not start.
    ///
    /// ```
    /// use filoplume::middleware::RateLimit;
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let app = App::new()
    ///     .post("/codes", || "sent")
    ///     .with(RateLimit::per(1, Duration::from_secs(3600)));
    /// let client = app.test();
    /// client.post("/codes").send().assert_status(200);
    /// client.post("/codes").send().assert_status(429);
    /// ```
    pub fn per(requests: u32, period: Duration) -> Self {
        let mut mistakes = Vec::new();
        if requests == 0 || period.is_zero() {
            mistakes.push(
                "RateLimit: a limit of no requests, or a period of 0, would refuse everything"
                    .to_owned(),
            );
        }
        let bucket = Bucket::new(requests.max(1), period);
        Self {
            bucket,
            memory: Memory::new(KEYS_MAX),
            networks: Memory::new(KEYS_MAX),
            key: None,
            name: String::new(),
            says_headers: true,
            #[cfg(feature = "redis")]
            redis: None,
            mistakes,
        }
    }

    /// Sets how many requests an idle client may send at once: the size of its bucket. Default: as
    /// many as are allowed in the period.
    #[must_use]
    pub fn burst(mut self, requests: u32) -> Self {
        if requests == 0 {
            self.mistakes
                .push("RateLimit: with a burst of 0 everything would be refused".to_owned());
        }
        self.bucket = self.bucket.with_burst(requests.max(1));
        self
    }

    /// Identifies clients by the result of a closure; for `None`, by address.
    ///
    /// The key should be verified, such as a user who is logged in: a client that can invent keys
    /// has no limit. Only the first 256 bytes count.
    ///
    /// ```
    /// use filoplume::middleware::RateLimit;
    /// use filoplume::prelude::*;
    ///
    /// #[derive(Clone)]
    /// struct User {
    ///     id: u64,
    /// } // added by the middleware that checks the login
    ///
    /// let limit = RateLimit::per_second(5)
    ///     .key(|request| request.extensions().get::<User>().map(|user| user.id.to_string()));
    /// ```
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Request) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Some(Box::new(key));
        self
    }

    /// Sets how many clients are remembered, and how many IPv6 networks. Default: 100,000 of each.
    #[must_use]
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.memory = Memory::new(keys);
        self.networks = Memory::new(keys);
        self
    }

    /// Omits the `x-ratelimit-..` headers. `Retry-After` is still sent.
    ///
    /// ```
    /// use filoplume::middleware::RateLimit;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hi").with(RateLimit::per_minute(1).without_headers());
    /// let client = app.test();
    /// client.get("/").send().assert_status(200).assert_no_header("x-ratelimit-remaining");
    /// assert!(client.get("/").send().assert_status(429).header("retry-after").is_some());
    /// ```
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.says_headers = false;
        self
    }

    /// Shares the counts of several instances through Redis. Takes a URL, such as
    /// `redis://10.0.0.5/`, or a [`RedisCounters`] with more settings.
    ///
    /// ```no_run
    /// use filoplume::middleware::{RateLimit, RedisCounters, WhenRedisFails};
    ///
    /// let shared =
    ///     RedisCounters::new("redis://10.0.0.5/").when_it_fails(WhenRedisFails::Allow);
    /// let limit = RateLimit::per_second(10).name("search").redis(shared);
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn redis(mut self, counters: impl Into<RedisCounters>) -> Self {
        self.redis = Some(counters.into());
        self
    }

    /// Sets the name under which counts are shared. Limits with the same name, rate and burst share
    /// their counts. Default: none.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Takes a token of the client and one of its network. A request that the limit of one refuses
    /// takes nothing from the other. Returns whose limit decided.
    fn take(&self, client: &Client) -> Result<(Decision, Owner)> {
        if let Some(refusal) = client.network.as_ref().and_then(|key| self.network_refusal(key)) {
            return Ok((refusal, Owner::Network));
        }
        let own = self.take_from(&self.memory, &client.key, &self.bucket)?;
        let Some(network) = &client.network else { return Ok((own, Owner::Client)) };
        if own.retry_after.is_some() {
            return Ok((own, Owner::Client));
        }
        let shared = self.take_from(&self.networks, network, &self.network_bucket())?;
        Ok((own.and(shared), Owner::Network))
    }

    /// Returns the decision about a request if its network has no token left. Such a request must
    /// not be counted for its client: each of 65,536 clients of a network would be remembered for
    /// nothing, and others would be forgotten for them. Redis forgets nobody, and is not asked.
    fn network_refusal(&self, network: &str) -> Option<Decision> {
        #[cfg(feature = "redis")]
        if self.redis.is_some() {
            return None;
        }
        self.networks.refusal(network.as_bytes(), &self.network_bucket())
    }

    fn network_bucket(&self) -> Bucket {
        self.bucket.times(NETWORK_SHARE)
    }

    fn take_from(&self, memory: &Memory, key: &str, bucket: &Bucket) -> Result<Decision> {
        let key = key.as_bytes();
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.redis {
            let name = self.redis_key(key, bucket);
            return redis.take(&name, bucket, || memory.take(key, bucket));
        }
        Ok(memory.take(key, bucket))
    }

    /// Returns the key in Redis. It contains the bucket, so that a changed limit does not read old
    /// counts.
    #[cfg(feature = "redis")]
    fn redis_key(&self, key: &[u8], bucket: &Bucket) -> Vec<u8> {
        let prefix = format!("filoplume:rate:{}:{bucket}:", self.name);
        [prefix.as_bytes(), key].concat()
    }

    /// Returns the error for a request that may come again in `wait`. Its source is for the log and
    /// for developers. It does not contain the key, which may be a secret.
    fn refusal(&self, wait: Duration, owner: Owner) -> Error {
        let seconds = whole_seconds(wait);
        let unit = if seconds == 1 { "second" } else { "seconds" };
        let message = format!("too many requests; try again in {seconds} {unit}");
        let (owner, bucket) = match owner {
            Owner::Client => ("client", self.bucket),
            Owner::Network => ("IPv6 network of the client", self.network_bucket()),
        };
        // The log escapes what is not ASCII, such as the sign for a millionth.
        let interval = format!("{:?}", bucket.interval()).replace('µ', "u");
        let burst = bucket.burst();
        let name = if self.name.is_empty() { "" } else { &format!(" `{}`", self.name) };
        let limit = format!(
            "RateLimit{name}: the {owner} has used up its limit of a request every {interval}, \
             in bursts of {burst}"
        );
        Error::new(StatusCode::TOO_MANY_REQUESTS, message)
            .with_source(limit)
            .with_known_header("retry-after", seconds.to_string())
    }

    fn set_headers(&self, headers: &mut Headers, decision: &Decision) -> Result<()> {
        if self.says_headers {
            headers.insert("x-ratelimit-limit", self.bucket.burst().to_string())?;
            headers.insert("x-ratelimit-remaining", decision.remaining.to_string())?;
            let reset =
                decision.full_after.as_secs() + u64::from(decision.full_after.subsec_nanos() > 0);
            headers.insert("x-ratelimit-reset", reset.to_string())?;
        }
        Ok(())
    }
}

impl Middleware for RateLimit {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let client = Client::of(&request, next.context(), self.key.as_ref());
        let (decision, owner) = self.take(&client)?;
        let mut response = match decision.retry_after {
            Some(wait) => {
                if client.is_an_address() {
                    next.context().settings.proxies.warn_of_untrusted(&request);
                }
                self.refusal(wait, owner).into_pending_response()
            }
            None => next.run(request),
        };
        // Headers of an inner limit are overwritten only if this limit has refused the request.
        if decision.retry_after.is_some() || !response.headers().contains("x-ratelimit-limit") {
            self.set_headers(response.headers_mut(), &decision)?;
        }
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        for mistake in &self.mistakes {
            options.mistake(mistake);
        }
        #[cfg(feature = "redis")]
        if let Some(mistake) = self.redis.as_ref().and_then(RedisCounters::mistake) {
            options.mistake(mistake);
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("bucket", &self.bucket)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_network_makes_no_other_client_forgotten() {
        let limit = RateLimit::per(1, Duration::from_secs(3600)).keys_max(128);
        let is_allowed = |key: String, network: Option<&str>| {
            let client = Client { key, network: network.map(str::to_owned) };
            limit.take(&client).unwrap().0.retry_after.is_none()
        };
        assert!(is_allowed("ip:192.0.2.1".to_owned(), None));
        let flood = (0..10_000).map(|number| format!("ip:2001:db8:1:{number:x}::"));
        let allowed = flood.filter(|key| is_allowed(key.clone(), Some("net:2001:db8:1::"))).count();
        assert_eq!(allowed, NETWORK_SHARE as usize);
        assert!(!is_allowed("ip:192.0.2.1".to_owned(), None), "its bucket is still empty");
        // A request that the network has refused has taken no token of its client.
        let moved = "ip:2001:db8:1:ffff::".to_owned();
        assert!(!is_allowed(moved.clone(), Some("net:2001:db8:1::")));
        assert!(is_allowed(moved, Some("net:2001:db8:2::")));
    }

    #[test]
    fn a_refusal_is_ascii_because_the_log_escapes_the_rest() {
        let refusal = RateLimit::per_second(2000).refusal(Duration::from_secs(1), Owner::Client);
        let text = format!("{refusal:?}");
        assert!(text.contains("a request every 500us,") && text.is_ascii(), "{text}");
    }
}
