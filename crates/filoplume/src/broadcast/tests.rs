//! Who gets a message, and which connections are removed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// Notes each message.
struct Noting {
    messages: Sender<Bytes>,
    /// If there is one, delivering waits until it is told to go on.
    go_on: Option<Receiver<()>>,
}

impl Subscriber for Noting {
    fn deliver(&self, bytes: &Bytes, _key: Option<u64>) -> Delivery {
        self.messages.send(bytes.clone()).unwrap();
        if let Some(go_on) = &self.go_on {
            go_on.recv_timeout(PATIENCE).unwrap();
        }
        Delivery::Sent
    }

    fn is_open(&self) -> bool {
        true
    }

    fn disconnect(&self) {}
}

#[test]
fn nobody_waits_for_a_message_that_is_being_sent() {
    let feed = Broadcast::new(SlowClients::Drop);
    let ((messages, has_begun), (go_on, told)) = (channel(), channel());
    feed.subscribe(Noting { messages, go_on: Some(told) });
    let sends = feed.clone();
    let sender = thread::spawn(move || sends.send(&Bytes::from("first"), None));
    assert_eq!(has_begun.recv_timeout(PATIENCE).unwrap(), "first");
    // Within the sending of the first message.
    let (messages, received) = channel();
    for _ in 0..2 * PRUNE_MIN {
        feed.subscribe(Noting { messages: messages.clone(), go_on: None });
    }
    assert_eq!((feed.len(), feed.totals().messages), (1 + 2 * PRUNE_MIN, 0));
    go_on.send(()).unwrap();
    assert_eq!(sender.join().unwrap().sent, 1);
    assert_eq!((feed.len(), feed.totals().messages), (1 + 2 * PRUNE_MIN, 1));
    go_on.send(()).unwrap();
    assert_eq!(feed.send(&Bytes::from("second"), None).sent, 1 + 2 * PRUNE_MIN);
    assert_eq!(received.try_iter().collect::<Vec<_>>(), vec!["second"; 2 * PRUNE_MIN]);
}

/// A connection that takes nothing, and counts what it is asked.
#[derive(Default)]
struct Slow {
    looked_at: AtomicUsize,
    disconnected: AtomicUsize,
}

impl Subscriber for Arc<Slow> {
    fn deliver(&self, _: &Bytes, _: Option<u64>) -> Delivery {
        Delivery::Full
    }

    fn is_open(&self) -> bool {
        self.looked_at.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn disconnect(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection that is open while the other end of its channel exists.
impl Subscriber for Weak<()> {
    fn deliver(&self, _: &Bytes, _: Option<u64>) -> Delivery {
        Delivery::Sent
    }

    fn is_open(&self) -> bool {
        self.strong_count() > 0
    }

    fn disconnect(&self) {}
}

#[test]
fn a_list_whose_connections_were_closed_is_empty_without_a_message() {
    let feed = Broadcast::new(SlowClients::Drop);
    assert!(feed.is_empty());
    let clients: Vec<Arc<()>> = (0..4).map(|_| Arc::default()).collect();
    for (number, client) in clients.iter().enumerate() {
        feed.subscribe(Arc::downgrade(client));
        // Half of them are members, and half newcomers.
        if number == 1 {
            feed.send(&Bytes::from("news"), None);
        }
    }
    let mut clients = clients.into_iter();
    while clients.next_back().is_some() {
        assert_eq!(feed.is_empty(), clients.len() == 0, "{}", clients.len());
        assert_eq!(feed.len(), clients.len(), "closed ones are removed");
    }
}

#[test]
fn a_list_that_is_being_sent_to_is_not_known_to_be_empty() {
    let feed = Broadcast::new(SlowClients::Drop);
    let client = Arc::new(());
    feed.subscribe(Arc::downgrade(&client));
    let mut turn = feed.turn();
    assert!(!feed.is_empty(), "it is a newcomer");
    turn.let_in();
    drop(client);
    assert!(!feed.is_empty(), "the message may still reach it");
    drop(turn);
    assert!(feed.is_empty());
}

#[test]
fn a_slow_connection_is_ended_removed_and_counted() {
    let feed = Broadcast::new(SlowClients::Disconnect);
    let slow = Arc::<Slow>::default();
    feed.subscribe(Arc::clone(&slow));
    let delivered = feed.send(&Bytes::from("news"), None);
    assert_eq!((delivered.disconnected, feed.len()), (1, 0));
    assert_eq!(slow.disconnected.load(Ordering::Relaxed), 1);
    let Totals { messages, sent, dropped, disconnected } = feed.totals();
    assert_eq!((messages, sent, dropped, disconnected), (1, 0, 0, 1));
}

/// Looking at all of them for each new one would cost the square of their number.
#[test]
fn open_connections_are_looked_at_each_time_their_number_has_doubled() {
    let feed = Broadcast::new(SlowClients::Drop);
    let slow = Arc::<Slow>::default();
    (0..=4 * PRUNE_MIN).for_each(|_| feed.subscribe(Arc::clone(&slow)));
    let looks = slow.looked_at.load(Ordering::Relaxed);
    assert_eq!(looks, PRUNE_MIN + 2 * PRUNE_MIN + 4 * PRUNE_MIN);
}
