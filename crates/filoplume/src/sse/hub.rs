//! Sending events to all clients of an app.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use filoplume_runtime::pushed;
use parking_lot::Mutex;

#[cfg(feature = "redis")]
use super::joined;
use super::stream::{KEEP_ALIVE, channel_with};
use super::{Event, EventStream, LastEventId};
use crate::broadcast::{Broadcast, Delivered, SlowClients};
#[cfg(feature = "redis")]
use crate::instances::{Membership, RedisChannel};

/// Sends events to any number of clients. Clones send to the same clients.
///
/// An event is encoded once. Sending never waits for a client: [`SlowClients`] says what happens to
/// one for which too much waits. Clients that have left are removed.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::sse::{Event, Hub, LastEventId};
///
/// let hub = Hub::new().replay(100);
/// let app = App::new()
///     .state(hub.clone())
///     .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
///     .post("/news", |State(hub): State<Hub>, text: String| {
///         hub.send(Event::new(text));
///     });
/// let client = app.test();
/// client.post("/news").body("first").send();
/// // A client that has got the event 0 before gets what is missing.
/// let feed = client.get("/feed").header("last-event-id", "0").send();
/// assert!(feed.text().ends_with("data: first\n\n"));
/// ```
#[derive(Clone)]
pub struct Hub {
    broadcast: Broadcast<pushed::Sender>,
    replay: usize,
    capacity: usize,
    keep_alive: Duration,
    recent: Arc<Mutex<Recent>>,
    #[cfg(feature = "redis")]
    joined: Option<Arc<Membership>>,
}

/// The last events.
struct Recent {
    events: VecDeque<(String, Bytes)>,
    /// Differs in each process, so that an ID of an earlier one is not taken for one of this.
    prefix: u128,
    number: u64,
}

impl Hub {
    /// Returns a hub without clients that disconnects slow ones and keeps no events.
    #[must_use]
    pub fn new() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let recent = Recent { events: VecDeque::new(), prefix: started.as_millis(), number: 0 };
        Self {
            broadcast: Broadcast::new(SlowClients::default()),
            replay: 0,
            capacity: pushed::CAPACITY,
            keep_alive: KEEP_ALIVE,
            recent: Arc::new(Mutex::new(recent)),
            #[cfg(feature = "redis")]
            joined: None,
        }
    }

    /// Keeps the last `events` events, for clients that connect again. Events without an ID get
    /// one. Set this before the hub is cloned.
    #[must_use]
    pub fn replay(mut self, events: usize) -> Self {
        self.replay = events;
        self
    }

    /// Sets what happens to slow clients. The default is to disconnect them: browsers connect
    /// again, and with [`replay`](Self::replay) they miss nothing. Set this before the hub is
    /// cloned.
    #[must_use]
    pub fn slow_clients(mut self, slow_clients: SlowClients) -> Self {
        self.broadcast = self.broadcast.slow_clients(slow_clients);
        self
    }

    /// Sets how many bytes may wait for a client before it counts as slow. The default is
    /// [`pushed::CAPACITY`].
    #[must_use]
    pub fn capacity(mut self, bytes: usize) -> Self {
        self.capacity = bytes;
        self
    }

    /// Sets after which time of silence a client gets a comment. The default is 15 seconds.
    #[must_use]
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.keep_alive = interval;
        self
    }

    /// Joins the hub to those of other instances: see [`instances`](crate::instances). Call this
    /// last, because the other settings have to be known.
    ///
    /// Events keep their IDs on all instances. A client that connects to another instance gets what
    /// it missed, if all instances have the same [`replay`](Self::replay). An event that two
    /// instances send at the same moment may then be missing or come twice. Events that were sent
    /// while Redis was away are in the replay of the sending instance only.
    ///
    /// ```no_run
    /// use filoplume::instances::RedisChannel;
    /// use filoplume::sse::Hub;
    ///
    /// # fn main() -> filoplume::Result<()> {
    /// let hub = Hub::new().replay(100).joined(&RedisChannel::new("redis://10.0.0.5/", "feed")?);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    #[must_use]
    pub fn joined(mut self, channel: &RedisChannel) -> Self {
        let here = Self { joined: None, ..self.clone() };
        let membership = channel.join(joined::KIND, move |message| {
            here.send(joined::read(message)?);
            Some(())
        });
        // Two hubs may have started in the same millisecond.
        self.recent.lock().prefix = membership.origin().into();
        self.joined = Some(Arc::new(membership));
        self
    }

    /// Returns a stream of the hub's events, as the response to a client. It begins with the kept
    /// events behind the last one that the client has got. If that one is not kept any more, it
    /// begins with all kept events: the client has missed these at least.
    pub fn subscribe(&self, last: &LastEventId) -> EventStream {
        self.subscribe_behind(last.0.as_deref())
    }

    /// As [`subscribe`](Self::subscribe), but a client that connects for the first time gets all
    /// kept events.
    pub fn subscribe_with_history(&self, last: &LastEventId) -> EventStream {
        // No event has an empty ID that a client could send back.
        self.subscribe_behind(Some(last.0.as_deref().unwrap_or_default()))
    }

    fn subscribe_behind(&self, last: Option<&str>) -> EventStream {
        let (sender, stream) = channel_with(self.capacity);
        // Locked until the client is added: an event must not fall between both.
        let recent = self.recent.lock();
        if let Some(last) = last {
            let behind =
                recent.events.iter().position(|(id, _)| *id == last).map_or(0, |at| at + 1);
            let missed: Vec<&[u8]> =
                recent.events.iter().skip(behind).map(|(_, bytes)| &**bytes).collect();
            // In one piece, which is accepted however long it is.
            let _ = sender.try_send(missed.concat());
        }
        self.broadcast.subscribe(sender);
        drop(recent);
        stream.keep_alive(self.keep_alive)
    }

    /// Sends an event to all clients. Returns what happened to those of this instance.
    pub fn send(&self, event: impl Into<Event>) -> Delivered {
        let mut event = event.into();
        if self.replay == 0 {
            self.pass_on(&event);
            return self.broadcast.send(&event.encode(), event.key_hash());
        }
        let mut recent = self.recent.lock();
        if !event.has_id() {
            recent.number += 1;
            event.set_valid_id(format!("{:x}-{}", recent.prefix, recent.number));
        }
        let bytes = event.encode();
        while recent.events.len() >= self.replay {
            recent.events.pop_front();
        }
        let id = event.id_text().unwrap_or_default().to_owned();
        recent.events.push_back((id, bytes.clone()));
        // Sent with the lock, so that all clients get the events in the order of the kept ones.
        self.pass_on(&event);
        self.broadcast.send(&bytes, event.key_hash())
    }

    /// Sends an event to other instances.
    #[cfg(feature = "redis")]
    fn pass_on(&self, event: &Event) {
        if let Some(joined) = &self.joined {
            joined.send(|message| joined::write(event, message));
        }
    }

    #[cfg(not(feature = "redis"))]
    #[allow(clippy::unused_self, reason = "with Redis, there are other instances")]
    fn pass_on(&self, _: &Event) {}

    /// Returns the number of clients of this instance. Those that have left since the last event
    /// may be counted.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.broadcast.len()
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("broadcast", &self.broadcast)
            .field("replay", &self.replay)
            .finish_non_exhaustive()
    }
}
