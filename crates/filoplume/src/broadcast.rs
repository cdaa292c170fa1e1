//! Sending the same bytes to many connections.

use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use filoplume_runtime::{pushed, tcp};
use parking_lot::{Mutex, MutexGuard};

/// A connection that takes bytes without waiting. It is implemented for
/// [`pushed::Sender`] and [`tcp::Sender`]. An implementation must not block: the other subscribers
/// wait meanwhile.
///
/// ```
/// use bytes::Bytes;
/// use filoplume::broadcast::{Broadcast, Delivery, SlowClients, Subscriber};
/// use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
///
/// /// A thread of this program that gets what the clients get.
/// struct Copy(SyncSender<Bytes>);
///
/// impl Subscriber for Copy {
///     fn deliver(&self, bytes: &Bytes, _key: Option<u64>) -> Delivery {
///         match self.0.try_send(bytes.clone()) {
///             Ok(()) => Delivery::Sent,
///             Err(TrySendError::Full(_)) => Delivery::Full,
///             Err(TrySendError::Disconnected(_)) => Delivery::Gone,
///         }
///     }
///     fn is_open(&self) -> bool {
///         true
///     }
///     fn disconnect(&self) {}
/// }
///
/// let (sender, received) = sync_channel(100);
/// let feed = Broadcast::new(SlowClients::Drop);
/// feed.subscribe(Copy(sender));
/// feed.send(&Bytes::from("news"), None);
/// assert_eq!(received.recv().unwrap(), "news");
/// ```
pub trait Subscriber: Send + 'static {
    /// Gives bytes to the connection. If it supports that, they replace waiting bytes of the same
    /// key.
    fn deliver(&self, bytes: &Bytes, key: Option<u64>) -> Delivery;

    /// Returns whether the connection is open, as far as is known.
    fn is_open(&self) -> bool;

    /// Ends the connection because it is too slow. What waits for it may still be sent.
    fn disconnect(&self);
}

/// What happened to bytes for one connection.
///
/// ```
/// use filoplume::broadcast::{Delivery, Subscriber};
/// use filoplume::pushed;
///
/// let (sender, body) = pushed::channel();
/// let _body = body.capacity(4);
/// assert_eq!(sender.deliver(&"news".into(), None), Delivery::Sent);
/// assert_eq!(sender.deliver(&"more".into(), None), Delivery::Full);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// They will be sent.
    Sent,
    /// Too many bytes wait for it already.
    Full,
    /// It is closed.
    Gone,
}

/// What happens to a client for which too many bytes wait.
///
/// ```
/// use filoplume::broadcast::SlowClients;
///
/// assert_eq!(SlowClients::default(), SlowClients::Disconnect);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowClients {
    /// It is disconnected. It can connect again, and knows that it may have missed something.
    #[default]
    Disconnect,
    /// It does not get the message, and stays.
    Drop,
    /// A message with a key replaces a waiting message of the same key. If there is none, the
    /// client does not get the message, and stays.
    Coalesce,
}

/// How many clients a message was given to, and what happened to the others.
///
/// ```
/// use filoplume::sse::{Event, Hub};
///
/// let delivered = Hub::new().send(Event::new("nobody listens"));
/// assert_eq!((delivered.sent, delivered.dropped, delivered.disconnected), (0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// Clients that get it.
    pub sent: usize,
    /// Slow clients that do not get it.
    pub dropped: usize,
    /// Slow clients that were disconnected.
    pub disconnected: usize,
}

/// A list of connections that get the same messages. Clones refer to the same list.
///
/// A message is bytes that are already encoded. They are shared and not copied until they are sent.
/// Sending never waits for a client.
///
/// ```
/// use bytes::Bytes;
/// use filoplume::broadcast::{Broadcast, SlowClients};
/// use filoplume::pushed;
///
/// let feed = Broadcast::new(SlowClients::Drop);
/// let (sender, body) = pushed::channel();
/// feed.subscribe(sender);
/// assert_eq!(feed.send(&Bytes::from("news"), None).sent, 1);
/// // The client leaves.
/// drop(body);
/// assert_eq!(feed.send(&Bytes::from("more"), None).sent, 0);
/// assert_eq!(feed.len(), 0);
/// ```
pub struct Broadcast<S> {
    slow_clients: SlowClients,
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    /// The connections that get messages. Locked while a message is sent, so that all of them get
    /// messages in the same order.
    members: Mutex<Vec<S>>,
    /// Never locked for long: event loops add connections, and must not wait for a message.
    door: Mutex<Door<S>>,
}

/// Where connections come in.
struct Door<S> {
    /// Connections that were added since the last message.
    newcomers: Vec<S>,
    /// The number of all other connections.
    members: usize,
    totals: Totals,
    /// From this number on, closed connections are removed before another one is added. Otherwise
    /// they would gather while no message is sent.
    prune_from: usize,
}

/// What happened to all messages so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) messages: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) disconnected: u64,
}

impl Totals {
    fn add(&mut self, delivered: Delivered) {
        self.messages += 1;
        self.sent += delivered.sent as u64;
        self.dropped += delivered.dropped as u64;
        self.disconnected += delivered.disconnected as u64;
    }
}

/// The smallest number of subscribers among which closed ones are looked for.
const PRUNE_MIN: usize = 64;

impl<S: Subscriber> Broadcast<S> {
    /// Returns an empty list.
    #[must_use]
    pub fn new(slow_clients: SlowClients) -> Self {
        let door = Door {
            newcomers: Vec::new(),
            members: 0,
            totals: Totals::default(),
            prune_from: PRUNE_MIN,
        };
        let shared = Shared { members: Mutex::new(Vec::new()), door: Mutex::new(door) };
        Self { slow_clients, shared: Arc::new(shared) }
    }

    /// Sets what happens to slow clients, for messages that are sent through this handle.
    #[must_use]
    pub fn slow_clients(mut self, slow_clients: SlowClients) -> Self {
        self.slow_clients = slow_clients;
        self
    }

    /// Adds a connection. It is removed when it is closed. This does not wait for a message that is
    /// being sent: the connection gets the next one.
    pub fn subscribe(&self, subscriber: S) {
        let mut door = self.shared.door.lock();
        if door.len() >= door.prune_from {
            door.newcomers.retain(Subscriber::is_open);
            // If this is locked, a message is being sent, which removes closed connections as well.
            if let Some(mut members) = self.shared.members.try_lock() {
                members.retain(Subscriber::is_open);
                door.members = members.len();
            }
            door.prune_from = (door.len() * 2).max(PRUNE_MIN);
        }
        door.newcomers.push(subscriber);
    }

    /// Gives a message to all connections. Messages of several threads reach all connections in the
    /// same order.
    pub fn send(&self, bytes: &Bytes, key: Option<u64>) -> Delivered {
        let mut turn = self.turn();
        turn.let_in();
        turn.send(bytes, key)
    }

    /// Waits until no other message is being sent. It is this caller's turn until the result is
    /// dropped.
    pub(crate) fn turn(&self) -> Turn<'_, S> {
        Turn { broadcast: self, members: self.shared.members.lock() }
    }

    /// Returns whether a client for which too much waits is disconnected.
    pub(crate) fn disconnects_slow_clients(&self) -> bool {
        self.slow_clients == SlowClients::Disconnect
    }

    /// Counts a client that was disconnected before it was among the others.
    pub(crate) fn count_disconnected(&self) {
        self.shared.door.lock().totals.disconnected += 1;
    }

    pub(crate) fn totals(&self) -> Totals {
        self.shared.door.lock().totals
    }

    /// Returns the number of connections. Connections that were closed since the last message may
    /// be counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.door.lock().len()
    }

    /// Returns whether there is no open connection. Connections that were closed since the last
    /// message do not count, but while a message is being sent they may.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut door = self.shared.door.lock();
        if !drop_closed(&mut door.newcomers) {
            return false;
        }
        if let Some(mut members) = self.shared.members.try_lock() {
            drop_closed(&mut members);
            door.members = members.len();
        }
        door.members == 0
    }

    /// Returns a handle that keeps no connection open.
    pub(crate) fn downgrade(&self) -> WeakBroadcast<S> {
        WeakBroadcast { slow_clients: self.slow_clients, shared: Arc::downgrade(&self.shared) }
    }
}

/// Removes connections from the end until one is open. Returns whether none is left. Each closed
/// one is looked at once, and a long list of open ones costs no more than a short one.
fn drop_closed<S: Subscriber>(subscribers: &mut Vec<S>) -> bool {
    while subscribers.last().is_some_and(|last| !last.is_open()) {
        subscribers.pop();
    }
    subscribers.is_empty()
}

/// A handle that does not keep the list in existence.
pub(crate) struct WeakBroadcast<S> {
    slow_clients: SlowClients,
    shared: Weak<Shared<S>>,
}

impl<S> WeakBroadcast<S> {
    /// Returns the list, unless its last other handle was dropped.
    pub(crate) fn upgrade(&self) -> Option<Broadcast<S>> {
        let shared = self.shared.upgrade()?;
        Some(Broadcast { slow_clients: self.slow_clients, shared })
    }
}

impl<S> Door<S> {
    fn len(&self) -> usize {
        self.newcomers.len() + self.members
    }
}

/// The right to send the next message.
pub(crate) struct Turn<'a, S> {
    broadcast: &'a Broadcast<S>,
    members: MutexGuard<'a, Vec<S>>,
}

impl<S: Subscriber> Turn<'_, S> {
    /// Adds the connections that have come until now to those that get the message.
    pub(crate) fn let_in(&mut self) {
        let mut door = self.broadcast.shared.door.lock();
        self.members.append(&mut door.newcomers);
        door.members = self.members.len();
    }

    /// Ends the connections that were let in.
    pub(crate) fn disconnect(mut self) {
        for member in self.members.drain(..) {
            member.disconnect();
        }
        self.broadcast.shared.door.lock().members = 0;
    }

    /// Gives the message to those that were let in.
    pub(crate) fn send(mut self, bytes: &Bytes, key: Option<u64>) -> Delivered {
        let slow_clients = self.broadcast.slow_clients;
        let key = key.filter(|_| slow_clients == SlowClients::Coalesce);
        let mut delivered = Delivered::default();
        self.members.retain(|member| match member.deliver(bytes, key) {
            Delivery::Sent => {
                delivered.sent += 1;
                true
            }
            Delivery::Full if slow_clients == SlowClients::Disconnect => {
                member.disconnect();
                delivered.disconnected += 1;
                false
            }
            Delivery::Full => {
                delivered.dropped += 1;
                true
            }
            Delivery::Gone => false,
        });
        let mut door = self.broadcast.shared.door.lock();
        door.members = self.members.len();
        door.totals.add(delivered);
        delivered
    }
}

impl<S> Clone for Broadcast<S> {
    fn clone(&self) -> Self {
        Self { slow_clients: self.slow_clients, shared: Arc::clone(&self.shared) }
    }
}

impl<S: Subscriber> fmt::Debug for Broadcast<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast")
            .field("slow_clients", &self.slow_clients)
            .field("len", &self.len())
            .finish()
    }
}

impl Subscriber for pushed::Sender {
    fn deliver(&self, bytes: &Bytes, key: Option<u64>) -> Delivery {
        let sent = match key {
            Some(key) => self.send_latest(key, bytes.clone()),
            None => self.try_send(bytes.clone()),
        };
        match sent {
            Ok(()) => Delivery::Sent,
            Err(error) if error.is_temporary() => Delivery::Full,
            Err(_) => Delivery::Gone,
        }
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn disconnect(&self) {
        self.finish();
    }
}

impl Subscriber for tcp::Sender {
    fn deliver(&self, bytes: &Bytes, _key: Option<u64>) -> Delivery {
        match self.send(bytes.clone()) {
            Ok(()) => Delivery::Sent,
            Err(tcp::SendError::Full | tcp::SendError::OutOfMemory) => Delivery::Full,
            Err(_) => Delivery::Gone,
        }
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn disconnect(&self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
