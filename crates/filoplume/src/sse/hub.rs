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
use super::{Event, EventStream, IntoEvent, LastEventId};
use crate::broadcast::{Broadcast, Delivered, SlowClients, WeakBroadcast};
#[cfg(feature = "redis")]
use crate::instances::{Membership, RedisChannel};
use crate::observe::Samples;

/// Sends events to any number of clients. Clones send to the same clients.
///
/// An event is encoded once. Sending never waits for a client: [`SlowClients`] says what happens to
/// a client for which too much waits. Clients that have left are removed.
///
/// The streams end when the last clone of the hub is dropped or the hub is [closed](Self::close),
/// after what waits has been sent. Browsers then connect again. They stop if the response is not a
/// `200`, which is so once a hub is closed, or if the page calls `close`.
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
/// // A client that has received the event 0 before gets what is missing.
/// let feed = client.get("/feed").header("last-event-id", "0").send();
/// assert!(feed.text().ends_with("data: first\n\n"));
/// ```
#[doc(alias("broadcast"))]
#[derive(Clone)]
pub struct Hub {
    broadcast: Broadcast<pushed::Sender>,
    replay: usize,
    capacity: usize,
    keep_alive: Duration,
    /// Never locked for long, because event loops lock it to read what clients have missed.
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
    /// How many clients are not among the others yet, because they still get what they missed.
    catching_up: usize,
    is_closed: bool,
}

/// The most bytes of a history that are taken at once. A client gets the next ones when it has
/// taken these.
const PIECE_BYTES: usize = 32 * 1024;

impl Recent {
    fn new(prefix: u128) -> Self {
        Self {
            events: VecDeque::new(),
            removed: 0,
            prefix,
            number: 0,
            catching_up: 0,
            is_closed: false,
        }
    }

    fn next_id(&mut self) -> String {
        self.number += 1;
        format!("{:x}-{}", self.prefix, self.number)
    }

    fn keep(&mut self, id: String, event: Bytes, events_max: usize) {
        while self.events.len() >= events_max {
            self.events.pop_front();
            self.removed += 1;
        }
        self.events.push_back((id, event));
    }

    /// Returns how many events there were up to the one with this ID, or before the first kept one
    /// if the event with this ID is not kept any more.
    fn count_to(&self, id: &str) -> u64 {
        let at = self.events.iter().position(|(kept, _)| kept == id).map_or(0, |at| at + 1);
        self.removed + at as u64
    }

    /// Returns how many events there have been.
    fn count(&self) -> u64 {
        self.removed + self.events.len() as u64
    }

    /// Returns the events after the first `count` of all: as many as fit into a piece, and at least
    /// one. `None` if some of these are not kept any more.
    fn piece_behind(&self, count: u64) -> Option<Vec<Bytes>> {
        let begin = usize::try_from(count.checked_sub(self.removed)?).ok()?;
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for (_, event) in self.events.range(begin..) {
            if bytes > 0 && bytes + event.len() > PIECE_BYTES {
                break;
            }
            bytes += event.len();
            piece.push(event.clone());
        }
        Some(piece)
    }
}

/// A client that gets the events that it has missed, before it gets new ones. No events are queued
/// for it meanwhile, so that a crowd that comes back at once needs no memory.
struct CatchUp {
    /// Weak: the streams of all other clients end with the hub, however slow this client is.
    broadcast: WeakBroadcast<pushed::Sender>,
    recent: Arc<Mutex<Recent>>,
    /// How many of all events it has received or need not receive.
    count: u64,
    /// `None` once it is among the clients.
    sender: Option<pushed::Sender>,
    /// Whether it has received some of them.
    has_begun: bool,
}

impl CatchUp {
    /// Returns the next events. `None` if the client has caught up, or was too slow.
    fn next(&mut self) -> Option<Bytes> {
        // `None` once the hub was dropped. The client still gets what is kept.
        let broadcast = self.broadcast.upgrade();
        let disconnects = broadcast.as_ref().is_some_and(Broadcast::disconnects_slow_clients);
        let recent = self.recent.lock();
        let piece = match recent.piece_behind(self.count) {
            Some(piece) => piece,
            // More events were sent meanwhile than are kept.
            None if self.has_begun && disconnects => {
                drop(recent);
                broadcast.iter().for_each(Broadcast::count_disconnected);
                // The stream ends with its last sender.
                self.sender = None;
                return None;
            }
            // A client that has received nothing yet is treated as if it had come later.
            None => {
                self.count = recent.removed;
                recent.piece_behind(self.count).unwrap_or_default()
            }
        };
        if piece.is_empty() {
            let sender = self.sender.take()?;
            // The stream of a hub that is closed or dropped ends with its last sender.
            if let Some(broadcast) = broadcast.filter(|_| !recent.is_closed) {
                // `recent` stays locked, so that no event is missed in between.
                broadcast.subscribe(sender);
            }
            return None;
        }
        drop(recent);
        self.count += piece.len() as u64;
        self.has_begun = true;
        Some(piece.concat().into())
    }
}

impl Drop for CatchUp {
    fn drop(&mut self) {
        self.recent.lock().catching_up -= 1;
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

    /// Sets after how much silence a client gets a comment. The default is 15 seconds.
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
    /// events after the last one that the client has received. If that one is not kept any more, it
    /// begins with all kept events: the client has missed these at least. They are sent at the pace
    /// of the client, and nothing waits for it meanwhile. If more events are sent in that time than
    /// are kept, it counts as slow.
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
        let stream = stream.keep_alive(self.keep_alive);
        let recent = self.recent.lock();
        let count = last.map_or(recent.count(), |last| recent.count_to(last));
        if count == recent.count() {
            if recent.is_closed {
                return stream.over();
            }
            // `recent` stays locked, as above.
            self.broadcast.subscribe(sender);
            return stream;
        }
        drop(recent);
        let mut missed = self.catch_up(count, sender);
        stream.begin_with(move || missed.next())
    }

    fn catch_up(&self, count: u64, sender: pushed::Sender) -> CatchUp {
        let recent = Arc::clone(&self.recent);
        recent.lock().catching_up += 1;
        let (broadcast, sender) = (self.broadcast.downgrade(), Some(sender));
        CatchUp { broadcast, recent, count, sender, has_begun: false }
    }

    /// Ends the streams of all clients, after what waits for them has been sent. Call this when
    /// nothing more will happen, such as at the end of a game. Browsers then connect again, get
    /// the kept events that they have missed, and finally a `204`, after which they stop. Events
    /// that are sent to a closed hub are ignored.
    ///
    /// This is for all clones of the hub. Of [joined](crate::instances) hubs, each instance closes
    /// its own.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::sse::{Hub, LastEventId};
    ///
    /// let hub = Hub::new();
    /// let app = App::new()
    ///     .state(hub.clone())
    ///     .get("/score", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last));
    /// let client = app.test();
    /// hub.close();
    /// client.get("/score").send().assert_status(204);
    /// ```
    pub fn close(&self) {
        let mut turn = self.broadcast.turn();
        {
            let mut recent = self.recent.lock();
            recent.is_closed = true;
            // With the lock on `recent`: nobody is added afterwards.
            turn.let_in();
        }
        turn.disconnect();
    }

    /// Sends an event to all clients. Returns what happened to those of this instance.
    pub fn send(&self, event: impl IntoEvent) -> Delivered {
        if self.recent.lock().is_closed {
            return Delivered::default();
        }
        let mut event = event.into_event();
        if self.replay == 0 {
            self.pass_on(&event);
            return self.broadcast.send(&event.encode(), event.key_hash());
        }
        let mut turn = self.broadcast.turn();
        if !event.has_id() {
            event.set_valid_id(self.recent.lock().next_id());
        }
        let (bytes, id) = (event.encode(), event.id_text().unwrap_or_default().to_owned());
        {
            let mut recent = self.recent.lock();
            recent.keep(id, bytes.clone(), self.replay);
            // With the lock on `recent`: clients that come later find the event among the kept
            // ones.
            turn.let_in();
        }
        self.pass_on(&event);
        turn.send(&bytes, event.key_hash())
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
    /// may be counted. Those that still get what they have missed are not.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.broadcast.len()
    }

    /// Returns whether this instance has no clients. Those that have left do not count, and those
    /// that still get what they have missed do. So an app that makes a hub for each name that a
    /// client chooses can drop the unused ones. Only while an event is being sent, clients that
    /// have left may count.
    ///
    /// ```
    /// use filoplume::sse::{Hub, LastEventId};
    ///
    /// let hub = Hub::new();
    /// let stream = hub.subscribe(&LastEventId::default());
    /// assert!(!hub.is_empty());
    /// // The client leaves.
    /// drop(stream);
    /// assert!(hub.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // In this order, because a client that has caught up is among the others before it stops
        // to count here.
        self.recent.lock().catching_up == 0 && self.broadcast.is_empty()
    }

    /// Returns a collector for [`App::collector`](crate::App::collector), which adds these to the
    /// metrics, with this name as the label `hub`: the clients, the events, and how many times an
    /// event was sent to a client, dropped, or cost a client its connection.
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
mod tests;
