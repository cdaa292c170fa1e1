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
use crate::observe::Samples;

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
    /// How many events were removed from the front.
    removed: u64,
    /// Differs in each process, so that an ID of an earlier one is not taken for one of this.
    prefix: u128,
    number: u64,
}

/// How often a history is copied before that is done with the lock.
const COPIES_MAX: usize = 3;

impl Recent {
    fn new(prefix: u128) -> Self {
        Self { events: VecDeque::new(), removed: 0, prefix, number: 0 }
    }

    /// Returns the kept events behind the one with this ID, or all if it is not kept any more, and
    /// how many events there have been.
    fn behind(&self, id: &str) -> (Vec<Bytes>, u64) {
        let begin = self.events.iter().position(|(kept, _)| kept == id).map_or(0, |at| at + 1);
        let until = self.removed + self.events.len() as u64;
        (self.events.range(begin..).map(|(_, bytes)| bytes.clone()).collect(), until)
    }

    /// Returns all events but the first `count` that there have been. `None` if some of these are
    /// not kept any more.
    fn from(&self, count: u64) -> Option<Vec<Bytes>> {
        let begin = usize::try_from(count.checked_sub(self.removed)?).ok()?;
        Some(self.events.range(begin..).map(|(_, bytes)| bytes.clone()).collect())
    }
}

impl Hub {
    /// Returns a hub without clients that disconnects slow ones and keeps no events.
    #[must_use]
    pub fn new() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let recent = Recent::new(started.as_millis());
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
        match last {
            Some(last) => self.subscribe_with_missed(last, sender),
            None => self.broadcast.subscribe(sender),
        }
        stream.keep_alive(self.keep_alive)
    }

    /// Adds a client that gets the events behind `last` first.
    fn subscribe_with_missed(&self, last: &str, sender: pushed::Sender) {
        for _ in 0..COPIES_MAX {
            let (missed, copied_until) = self.recent.lock().behind(last);
            // Copied without the lock: clients that all come back at once, each for a long history,
            // would stop those who send.
            let mut missed = missed.concat();
            // Locked until the client is added: an event must not fall between both.
            let recent = self.recent.lock();
            if let Some(newer) = recent.from(copied_until) {
                newer.iter().for_each(|event| missed.extend_from_slice(event));
                return self.subscribe_after(missed, sender);
            }
            // So many were sent meanwhile that not all of them are kept. It is as if the client had
            // come later.
        }
        let recent = self.recent.lock();
        self.subscribe_after(recent.behind(last).0.concat(), sender);
    }

    /// Adds a client whose stream begins with these events. They are sent in one piece, which is
    /// accepted however long it is.
    fn subscribe_after(&self, events: Vec<u8>, sender: pushed::Sender) {
        let _ = sender.try_send(events);
        self.broadcast.subscribe(sender);
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
            recent.removed += 1;
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

    /// Returns a collector for [`App::collector`](crate::App::collector), which adds these to the
    /// metrics, with the label `hub` that has this name: the clients, the events, and how many
    /// times an event was sent to a client, dropped, or cost a client its connection.
    pub fn collector(&self, name: &str) -> impl Fn(&mut Samples) + Send + Sync + use<> {
        const DELIVERIES: &str = "Events for single clients of a hub.";
        let (broadcast, name) = (self.broadcast.clone(), name.to_owned());
        move |samples| {
            let hub = ("hub", &*name);
            let totals = broadcast.totals();
            samples.gauge_of(
                "filoplume_hub_clients",
                "Clients of a hub. Those that have left since the last event may be counted.",
                &[hub],
                broadcast.len(),
            );
            samples.counter_of(
                "filoplume_hub_events",
                "Events that a hub has sent to its clients.",
                &[hub],
                totals.messages,
            );
            for (result, count) in [
                ("sent", totals.sent),
                ("dropped", totals.dropped),
                ("disconnected", totals.disconnected),
            ] {
                let labels = [hub, ("result", result)];
                samples.counter_of("filoplume_hub_deliveries", DELIVERIES, &labels, count);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(recent: &mut Recent, events: std::ops::Range<u32>, replay: usize) {
        for number in events {
            if recent.events.len() == replay {
                recent.events.pop_front();
                recent.removed += 1;
            }
            recent.events.push_back((number.to_string(), Bytes::from(format!("{number};"))));
        }
    }

    #[test]
    fn what_is_sent_while_a_history_is_copied_is_neither_lost_nor_repeated() {
        let mut recent = Recent::new(0);
        kept(&mut recent, 0..10, 4);
        let (missed, until) = recent.behind("7");
        assert_eq!((missed.concat(), until), (b"8;9;".to_vec(), 10));
        assert_eq!(recent.from(until).unwrap().concat(), b"");
        kept(&mut recent, 10..14, 4);
        assert_eq!(recent.from(until).unwrap().concat(), b"10;11;12;13;");
        kept(&mut recent, 14..15, 4);
        assert_eq!(recent.from(until), None, "10 is not kept any more");
        assert_eq!(recent.behind("7").0.concat(), b"11;12;13;14;", "all that are kept");
    }
}
