//! Hubs and rooms of several instances, joined by Redis.
//!
//! An app that runs on several machines, or as several processes on one, has clients of a feed or
//! of a room on each. A [`RedisChannel`] passes what is sent on one instance on to the others:
//!
//! ```no_run
//! use filoplume::instances::RedisChannel;
//! use filoplume::sse::Hub;
//!
//! # fn main() -> filoplume::Result<()> {
//! let hub = Hub::new().replay(100).joined(&RedisChannel::new("redis://10.0.0.5/", "feed")?);
//! // Clients of all instances get it.
//! hub.send("news");
//! # Ok(())
//! # }
//! ```
//!
//! The clients of the sending instance get a message at once, without Redis. Clients of other
//! instances get it through Redis, at most once, and in the order in which a thread sent it.
//! Messages of different senders may arrive in different orders.
//!
//! While Redis is away, each instance serves its own clients as before. Messages for the others are
//! counted and lost. The threads connect again by themselves.
//!
//! A process has two threads for each URL, however many channels there are. Sending only adds to a
//! bounded queue, so that it never waits, not even for a Redis that does not answer.
//!
//! Redis is trusted to keep strangers out: whoever may publish there can send messages to all
//! clients. Anything else that they publish is counted and ignored.

// A file uses only files that are listed below it.
//
//   link      the threads and connections of a process
//   outbox    what waits to be published
//   wire      the form of messages

mod link;
mod outbox;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use self::link::Link;
use self::outbox::Post;
pub(crate) use self::wire::{Reader, Writer};
use crate::core::error::Result;
use crate::observe::Samples;

/// Longest message that is passed on, with the name of its room or event. It is twice the longest
/// message that a WebSocket receives by default, and small compared with the 32 MB after which
/// Redis disconnects a subscriber that reads too slowly.
pub const MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What the names of channels begin with in Redis.
const PREFIX: &str = "filoplume:channel:";

/// A named channel of a Redis server, which joins the hubs or rooms of several instances. Clones
/// share their counts.
///
/// Use different names for different hubs: all that are joined to a channel get the same messages.
///
/// ```no_run
/// use filoplume::instances::RedisChannel;
/// use filoplume::prelude::*;
/// use filoplume::sse::Hub;
///
/// # fn main() -> Result<()> {
/// let channel = RedisChannel::new("redis://10.0.0.5/", "feed")?;
/// let app = App::new().state(Hub::new().joined(&channel)).get("/counts", move || {
///     let counts = channel.counts();
///     format!("{} sent, {} dropped", counts.sent, counts.dropped)
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisChannel {
    link: Arc<Link>,
    name: Arc<str>,
    message_bytes_max: usize,
    counts: Arc<Counts>,
}

/// What happened to the messages of a channel in this process.
///
/// ```no_run
/// use filoplume::instances::RedisChannel;
///
/// # fn main() -> filoplume::Result<()> {
/// let counts = RedisChannel::new("redis://10.0.0.5/", "feed")?.counts();
/// assert_eq!((counts.sent, counts.received, counts.dropped, counts.refused), (0, 0, 0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelCounts {
    /// Messages that Redis has taken.
    pub sent: u64,
    /// Messages that did not reach Redis, or may not have: it was away or too slow, or the message
    /// too long.
    pub dropped: u64,
    /// Messages of other instances.
    pub received: u64,
    /// Messages from Redis that are too long, malformed or of another version.
    pub refused: u64,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    /// Whether the log says that messages were refused, and that some were too long.
    refused_is_logged: AtomicBool,
    too_long_is_logged: AtomicBool,
}

impl RedisChannel {
    /// Returns a channel. Connects in the background: an app starts without Redis too.
    ///
    /// The URL is `redis://[user:password@]host[:port][/database]` or `unix:///path`. Channels do
    /// not belong to a database: apps that share a server need different names.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the system has no more threads.
    pub fn new(url: &str, name: &str) -> Result<Self> {
        Ok(Self {
            link: Link::to(url)?,
            name: format!("{PREFIX}{name}").into(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            counts: Arc::default(),
        })
    }

    /// Sets the length of the longest message that is sent to and accepted from other instances.
    /// The default is [`MESSAGE_BYTES_MAX`]. Clients of the own instance get longer ones too.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Returns whether messages can be sent and received, as far as is known. A Redis that vanishes
    /// without closing the connection is noticed after 10 seconds, or when a message is sent to it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_connected(&self.name)
    }

    /// Returns what happened to the messages of this channel so far.
    #[must_use]
    pub fn counts(&self) -> ChannelCounts {
        self.counts.read()
    }

    /// Returns a collector for [`App::collector`](crate::App::collector), which adds these to the
    /// metrics, with its name as the label `channel`: whether it is connected, and its
    /// [counts](Self::counts).
    pub fn collector(&self) -> impl Fn(&mut Samples) + Send + Sync + use<> {
        let this = self.clone();
        move |samples| {
            let label = ("channel", this.name.strip_prefix(PREFIX).unwrap_or(&this.name));
            samples.gauge_of(
                "filoplume_channel_connected",
                "Whether messages can be exchanged with other instances.",
                &[label],
                usize::from(this.is_connected()),
            );
            let ChannelCounts { sent, dropped, received, refused } = this.counts();
            for (result, count) in
                [("sent", sent), ("dropped", dropped), ("received", received), ("refused", refused)]
            {
                samples.counter_of(
                    "filoplume_channel_messages",
                    "Messages to and from other instances.",
                    &[label, ("result", result)],
                    count,
                );
            }
        }
    }

    /// Joins a hub or rooms, until the result is dropped. `receive` is called with messages of
    /// this kind from others, and returns `None` for a malformed one. It must not wait.
    pub(crate) fn join(
        &self,
        kind: u8,
        receive: impl Fn(Reader<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Membership {
        let member = Arc::new(Member {
            channel: Arc::clone(&self.name),
            kind,
            origin: self.link.new_origin(),
            message_bytes_max: self.message_bytes_max,
            counts: Arc::clone(&self.counts),
            receive: Box::new(receive),
        });
        self.link.join(Arc::clone(&member));
        Membership { link: Arc::clone(&self.link), member }
    }
}

impl fmt::Debug for RedisChannel {
    // Without the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisChannel")
            .field("name", &self.name)
            .field("is_connected", &self.is_connected())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// A hub or rooms on a channel.
struct Member {
    channel: Arc<str>,
    kind: u8,
    /// Identifies the sender of a message. Redis returns a message to its sender too, which has
    /// delivered it already.
    origin: u64,
    message_bytes_max: usize,
    counts: Arc<Counts>,
    receive: Box<dyn Fn(Reader<'_>) -> Option<()> + Send + Sync>,
}

impl Member {
    fn receive(&self, message: &[u8]) {
        let read = || {
            if message.len() > self.message_bytes_max {
                return None;
            }
            let (header, fields) = Reader::open(message)?;
            if header.origin == self.origin {
                return Some(0);
            }
            if header.kind != self.kind {
                return None;
            }
            (self.receive)(fields)?;
            Some(1)
        };
        if let Some(received) = read() {
            self.counts.received.fetch_add(received, Ordering::Relaxed);
        } else {
            self.refuse(message.len() as u64);
        }
    }

    /// Counts a message that is too long or malformed.
    fn refuse(&self, bytes: u64) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        if !self.counts.refused_is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                channel = &*self.channel,
                bytes,
                "a message from Redis is too long or no message of another instance, and is \
                 ignored; further ones are only counted"
            );
        }
    }
}

/// The membership of a hub or of rooms in a channel. It ends when this is dropped.
pub(crate) struct Membership {
    link: Arc<Link>,
    member: Arc<Member>,
}

impl Membership {
    /// Sends a message to the others. Never waits.
    pub(crate) fn send(&self, write: impl FnOnce(&mut Writer)) {
        let member = &self.member;
        let mut message = Writer::new(member.kind, member.origin);
        write(&mut message);
        let bytes = message.finish();
        let counts = Arc::clone(&member.counts);
        if bytes.len() > member.message_bytes_max {
            counts.dropped();
            if !counts.too_long_is_logged.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    channel = &*member.channel,
                    bytes = bytes.len(),
                    bytes_max = member.message_bytes_max,
                    "a message is too long for other instances; further ones are only counted"
                );
            }
            return;
        }
        self.link.send(Post { channel: Arc::clone(&member.channel), bytes, counts });
    }

    /// Returns a number that no other hub and no other set of rooms has.
    pub(crate) fn origin(&self) -> u64 {
        self.member.origin
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.link.leave(&self.member);
    }
}

impl Counts {
    fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> ChannelCounts {
        ChannelCounts {
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: u8 = 1;
    const ORIGIN: u64 = 7;

    fn message(kind: u8, origin: u64) -> Vec<u8> {
        let mut message = Writer::new(kind, origin);
        message.content(b"hello");
        message.finish()
    }

    #[test]
    fn only_messages_of_other_members_are_received_and_only_foreign_ones_are_refused() {
        let longest = message(KIND, ORIGIN).len();
        let member = |message_bytes_max| Member {
            channel: "feed".into(),
            kind: KIND,
            origin: ORIGIN,
            message_bytes_max,
            counts: Arc::default(),
            receive: Box::new(|mut fields| fields.content().map(|_| ())),
        };
        for (kind, origin, bytes_max, expected) in [
            (KIND, ORIGIN + 1, longest, (1, 0)),
            (KIND, ORIGIN, longest, (0, 0)),
            (KIND + 1, ORIGIN + 1, longest, (0, 1)),
            (KIND, ORIGIN + 1, longest - 1, (0, 1)),
        ] {
            let member = member(bytes_max);
            member.receive(&message(kind, origin));
            let ChannelCounts { received, refused, .. } = member.counts.read();
            assert_eq!((received, refused), expected, "{kind} {origin} {bytes_max}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_for_others_counts_as_dropped() {
        // Nothing listens there. The threads that connect end with the last member.
        let channel = RedisChannel::new("unix:/nowhere/redis.sock", "long").expect("it is a URL");
        let channel = channel.message_bytes_max(20);
        let membership = channel.join(KIND, |_| Some(()));
        membership.send(|message| message.content(b"too long"));
        assert_eq!(channel.counts().dropped, 1);
    }
}
