//! The connection of this process to a Redis server, and its two threads.
//!
//! One thread publishes and one receives, because a connection with subscriptions accepts no
//! `PUBLISH`. The receiving thread waits for Redis and for nothing else. When the set of channels
//! changes, the publishing thread wakes it by a message to a channel that only this process
//! subscribes to.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{RedisError, RedisResult};

use super::Member;
use super::outbox::{Outbox, Post, Work};
use crate::core::error::{Error, Result};
use crate::redis_pool::{Connection, Event, RedisPool, query_all};

/// Timeout for connecting and for each answer. A healthy Redis answers in less than a millisecond.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long Redis may be silent before the receiving thread asks whether it is there. The answer
/// may take as long.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The delay before the first attempt to connect again, and the longest one. The delay doubles with
/// each attempt. A process tries rarely enough to be no load, and often enough to be back soon.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The links of this process by URL.
static LINKS: LazyLock<Mutex<HashMap<String, Weak<Link>>>> = LazyLock::new(Mutex::default);

/// The threads for one server. They end when this is dropped.
pub(super) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    pool: RedisPool,
    outbox: Outbox,
    /// The channel that wakes the receiving thread.
    wake_channel: String,
    origins: AtomicU64,
    members: Mutex<Vec<Arc<Member>>>,
    /// The channels that Redis has confirmed.
    subscribed: Mutex<Vec<Arc<str>>>,
    /// Whether the log says that Redis is away.
    is_away: AtomicBool,
}

impl Link {
    /// Returns the link to a server. It is the same for all users of a URL.
    pub(super) fn to(url: &str) -> Result<Arc<Self>> {
        let mut links = LINKS.lock();
        if let Some(link) = links.get(url).and_then(Weak::upgrade) {
            return Ok(link);
        }
        links.retain(|_, link| link.strong_count() > 0);
        let link = Arc::new(Self::start(url)?);
        links.insert(url.to_owned(), Arc::downgrade(&link));
        Ok(link)
    }

    fn start(url: &str) -> Result<Self> {
        let pool = RedisPool::new(url, TIMEOUT)
            .map_err(|mistake| Error::start_up(format!("RedisChannel: {mistake}")))?;
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| Error::start_up(format!("no random numbers: {error}")))?;
        let random = u64::from_ne_bytes(random);
        let shared = Arc::new(Shared {
            pool,
            outbox: Outbox::default(),
            wake_channel: format!("filoplume:wake:{random:016x}"),
            origins: AtomicU64::new(random),
            members: Mutex::default(),
            subscribed: Mutex::default(),
            is_away: AtomicBool::new(false),
        });
        let link = Self { shared };
        for (name, run) in
            [("redis-publish", publish as fn(&Shared)), ("redis-receive", receive as fn(&Shared))]
        {
            let shared = Arc::clone(&link.shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared)).map_err(
                |error| Error::start_up(format!("no thread for messages of Redis: {error}")),
            )?;
        }
        Ok(link)
    }

    /// Returns a number that no other hub or set of rooms has, in this process or another.
    pub(super) fn new_origin(&self) -> u64 {
        self.shared.origins.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn join(&self, member: Arc<Member>) {
        self.shared.members.lock().push(member);
        self.shared.outbox.wake();
    }

    pub(super) fn leave(&self, member: &Arc<Member>) {
        self.shared.members.lock().retain(|other| !Arc::ptr_eq(other, member));
        self.shared.outbox.wake();
    }

    pub(super) fn send(&self, post: Post) {
        self.shared.outbox.push(post);
    }

    pub(super) fn is_connected(&self, channel: &str) -> bool {
        let is_subscribed = self.shared.subscribed.lock().iter().any(|known| **known == *channel);
        is_subscribed && self.shared.outbox.is_up()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.outbox.close();
    }
}

/// The thread that publishes.
fn publish(shared: &Shared) {
    let mut delay = RETRY;
    loop {
        match shared.connect_to_publish() {
            Ok(connection) => {
                delay = RETRY;
                shared.outbox.connected();
                match shared.publish_on(connection) {
                    Ok(()) => return,
                    Err(error) => {
                        shared.report(&error);
                        shared.outbox.trying();
                    }
                }
            }
            Err(error) => {
                shared.report(&error);
                shared.outbox.away();
                if shared.pause(&mut delay) == Pause::Closed {
                    return;
                }
            }
        }
    }
}

/// The thread that receives.
fn receive(shared: &Shared) {
    let mut delay = RETRY;
    while let Err(error) = shared.receive_on_new_connection(&mut delay) {
        shared.subscribed.lock().clear();
        shared.report(&error);
        // Makes the publishing thread notice that its connection is broken too, before it loses a
        // message.
        shared.outbox.wake();
        if shared.pause(&mut delay) == Pause::Closed {
            return;
        }
    }
}

#[derive(PartialEq, Eq)]
enum Pause {
    Over,
    Closed,
}

/// What is known about Redis at the other end of the receiving connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Liveness {
    /// It has confirmed nothing yet.
    Unknown,
    Heard,
    /// A ping was sent, and nothing has arrived since.
    Asked,
}

impl Liveness {
    /// How long the next bytes may take.
    const fn patience(self) -> Duration {
        match self {
            Self::Unknown => TIMEOUT,
            Self::Heard | Self::Asked => HEARTBEAT,
        }
    }
}

impl Shared {
    fn connect_to_publish(&self) -> RedisResult<Connection> {
        let mut connection = self.pool.open()?;
        // The system accepts connections even for a process that does not answer.
        redis::cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    /// Publishes until the outbox is closed. What was under way when the connection broke is
    /// counted as dropped and not repeated: others may have received it.
    fn publish_on(&self, mut connection: Connection) -> RedisResult<()> {
        loop {
            let posts = match self.outbox.next() {
                Work::Publish(posts) => posts,
                Work::Wake => {
                    redis::cmd("PUBLISH").arg(&self.wake_channel).arg("").exec(&mut connection)?;
                    continue;
                }
                Work::End => return Ok(()),
            };
            let mut pipeline = redis::pipe();
            for post in &posts {
                pipeline.cmd("PUBLISH").arg(&*post.channel).arg(&*post.bytes);
            }
            let result = query_all::<Vec<i64>>(&mut connection, &pipeline);
            for post in &posts {
                if result.is_ok() { post.counts.sent() } else { post.counts.dropped() }
            }
            result?;
            self.report_return();
        }
    }

    /// Passes messages on until the outbox is closed.
    fn receive_on_new_connection(&self, delay: &mut Duration) -> RedisResult<()> {
        let mut server = self.pool.open()?;
        server.send(redis::cmd("SUBSCRIBE").arg(&self.wake_channel))?;
        let mut known = Vec::new();
        let mut liveness = Liveness::Unknown;
        loop {
            if !server.wait(liveness.patience())? {
                // The message that wakes this thread may have been lost.
                if self.outbox.is_closed() {
                    return Ok(());
                }
                liveness = self.ask_whether_it_is_there(&mut server, liveness)?;
                continue;
            }
            match server.next_event(self.message_bytes_max())? {
                Event::Message { channel, .. } if channel == self.wake_channel => {
                    if self.outbox.is_closed() {
                        return Ok(());
                    }
                    self.subscribe(&mut server, &mut known)?;
                }
                Event::Subscribed(channel) if channel == self.wake_channel => {
                    // The last message to this channel may have been sent before.
                    if self.outbox.is_closed() {
                        return Ok(());
                    }
                    *delay = RETRY;
                    self.report_return();
                    self.subscribe(&mut server, &mut known)?;
                }
                Event::Message { channel, content } => {
                    self.for_members(&channel, |member| member.receive(&content));
                }
                Event::TooLong { channel, bytes } => {
                    self.for_members(&channel, |member| member.refuse(bytes));
                }
                Event::Subscribed(channel) => self.confirm(&known, &channel),
                Event::Unsubscribed | Event::Pong => {}
            }
            liveness = Liveness::Heard;
        }
    }

    fn ask_whether_it_is_there(
        &self,
        server: &mut Connection,
        liveness: Liveness,
    ) -> RedisResult<Liveness> {
        if liveness != Liveness::Heard {
            let message = format!("it did not answer within {:?}", liveness.patience());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message).into());
        }
        server.send(&redis::cmd("PING"))?;
        Ok(Liveness::Asked)
    }

    /// Returns the length of the longest message that a member accepts.
    fn message_bytes_max(&self) -> usize {
        self.members.lock().iter().map(|member| member.message_bytes_max).max().unwrap_or(0)
    }

    /// Brings the subscriptions in line with the members.
    fn subscribe(&self, server: &mut Connection, known: &mut Vec<Arc<str>>) -> RedisResult<()> {
        let mut wanted: Vec<Arc<str>> =
            self.members.lock().iter().map(|member| Arc::clone(&member.channel)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for channel in wanted.iter().filter(|channel| !known.contains(channel)) {
            server.send(redis::cmd("SUBSCRIBE").arg(&**channel))?;
        }
        for channel in known.iter().filter(|channel| !wanted.contains(channel)) {
            server.send(redis::cmd("UNSUBSCRIBE").arg(&**channel))?;
        }
        self.subscribed.lock().retain(|channel| wanted.contains(channel));
        *known = wanted;
        Ok(())
    }

    /// Notes that Redis has confirmed a subscription.
    fn confirm(&self, known: &[Arc<str>], channel: &str) {
        let mut subscribed = self.subscribed.lock();
        if let Some(channel) = known.iter().find(|known| ***known == *channel) {
            if !subscribed.contains(channel) {
                subscribed.push(Arc::clone(channel));
            }
        }
    }

    fn for_members(&self, channel: &str, act: impl Fn(&Member)) {
        // Not locked while a message is given to clients: there may be many of them.
        let members: Vec<_> = self
            .members
            .lock()
            .iter()
            .filter(|member| *member.channel == *channel)
            .map(Arc::clone)
            .collect();
        members.iter().for_each(|member| act(member));
    }

    /// Reports the first failure since Redis was last there.
    fn report(&self, error: &RedisError) {
        if !self.outbox.is_closed() && !self.is_away.swap(true, Ordering::Relaxed) {
            let address = self.pool.address();
            tracing::warn!(%address, %error, "Redis is away: other instances are not reached");
        }
    }

    fn report_return(&self) {
        if self.is_away.swap(false, Ordering::Relaxed) {
            tracing::info!(address = %self.pool.address(), "Redis is back");
        }
    }

    /// Waits before the next attempt, and doubles the delay.
    fn pause(&self, delay: &mut Duration) -> Pause {
        self.outbox.pause(*delay);
        *delay = longer(*delay);
        if self.outbox.is_closed() { Pause::Closed } else { Pause::Over }
    }
}

/// Returns the delay after this one.
fn longer(delay: Duration) -> Duration {
    (delay * 2).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_become_twice_as_long_up_to_a_limit() {
        assert_eq!(longer(RETRY), RETRY * 2);
        assert_eq!(longer(RETRY_MAX), RETRY_MAX);
    }
}
