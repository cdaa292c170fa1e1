//! A bounded message queue between any number of threads.

#[cfg(all(test, loom))]
mod models;

use std::time::{Duration, Instant};
use std::{error, fmt};

use crate::sync::channel::{self, Receiver, Select, Sender, TryRecvError, TrySendError};
use crate::sync::{Arc, RwLock};

/// The maximum of pending unblocks. No program has more threads that could be blocked.
const UNBLOCKS_MAX: usize = 65_536;

/// A bounded queue that any number of threads send to and receive from. Clones are handles to the
/// same queue.
///
/// Sending never blocks. A full queue returns the message at once, so that the sender can decide
/// what to do.
///
/// ```
/// use filoplume_runtime::{MessageQueue, RecvError};
/// use std::thread;
///
/// let queue = MessageQueue::new(16);
/// let consumers: Vec<_> = (0..2)
///     .map(|_| {
///         let queue = queue.clone();
///         thread::spawn(move || {
///             let mut sum = 0;
///             while let Ok(number) = queue.recv() {
///                 sum += number;
///             }
///             sum
///         })
///     })
///     .collect();
/// for number in 1..=10 {
///     queue.send(number).unwrap();
/// }
/// queue.close();
/// let sum: u64 = consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum();
/// assert_eq!(sum, 55);
/// assert_eq!(queue.recv(), Err(RecvError::Closed));
/// ```
pub struct MessageQueue<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// `None` once closed. The channel closes when its only sender is dropped. Messages are sent
    /// under the read lock, so a message that was sent successfully was sent before the close and
    /// will be received.
    sender: RwLock<Option<Sender<T>>>,
    receiver: Receiver<T>,
    unblocker: Sender<()>,
    unblocks: Receiver<()>,
    capacity: usize,
}

impl<T> MessageQueue<T> {
    /// Returns a queue with room for this many messages, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let (sender, receiver) = channel::bounded(capacity);
        // Unbounded in type only. A bounded channel would allocate its whole capacity, although
        // unblocks are rare.
        let (unblocker, unblocks) = channel::unbounded();
        Self(Arc::new(Shared {
            sender: RwLock::new(Some(sender)),
            receiver,
            unblocker,
            unblocks,
            capacity,
        }))
    }

    /// Appends a message. Never blocks.
    ///
    /// # Errors
    ///
    /// Returns the message if the queue is full or closed.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let sender = self.0.sender.read();
        let Some(sender) = sender.as_ref() else {
            return Err(SendError::Closed(message));
        };
        sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) => SendError::Full(message),
            TrySendError::Disconnected(message) => SendError::Closed(message),
        })
    }

    /// Takes the oldest message. Blocks until there is one.
    ///
    /// # Errors
    ///
    /// [`RecvError::Unblocked`] once for each [`MessageQueue::unblock`], [`RecvError::Closed`] when
    /// the queue is closed and empty.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None)
    }

    /// Takes the oldest message. Blocks for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As [`MessageQueue::recv`], and [`RecvError::TimedOut`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.recv_until(Instant::now().checked_add(timeout))
    }

    /// Takes the oldest message. Never blocks.
    ///
    /// # Errors
    ///
    /// As [`MessageQueue::recv`], and [`RecvError::Empty`].
    pub fn try_recv(&self) -> Result<T, RecvError> {
        // Checked before the messages. Otherwise an unblock would never be received on a queue that
        // is never empty.
        if self.0.unblocks.try_recv().is_ok() {
            return Err(RecvError::Unblocked);
        }
        self.0.receiver.try_recv().map_err(|error| match error {
            TryRecvError::Empty => RecvError::Empty,
            TryRecvError::Disconnected => RecvError::Closed,
        })
    }

    /// Makes one receiver return [`RecvError::Unblocked`]: one that waits now, or otherwise the
    /// next one.
    pub fn unblock(&self) {
        if self.0.unblocks.len() < UNBLOCKS_MAX {
            // This cannot fail: `self` holds both ends of the channel.
            _ = self.0.unblocker.send(());
        }
    }

    /// Closes the queue for new messages. Messages in the queue are still received. After them
    /// receivers get [`RecvError::Closed`].
    pub fn close(&self) {
        let sender = self.0.sender.write().take();
        // Dropping the sender wakes all receivers. The lock is already released.
        drop(sender);
    }

    /// Returns whether the queue is closed for new messages.
    pub fn is_closed(&self) -> bool {
        self.0.sender.read().is_none()
    }

    /// Returns how many messages wait.
    pub fn len(&self) -> usize {
        self.0.receiver.len()
    }

    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.0.receiver.is_empty()
    }

    /// Returns whether the queue has no room for another message.
    pub fn is_full(&self) -> bool {
        self.0.receiver.is_full()
    }

    /// Returns the maximum number of waiting messages.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<T, RecvError> {
        loop {
            match self.try_recv() {
                Err(RecvError::Empty) => {}
                outcome => return outcome,
            }
            // Readiness does not reserve a message: with several receivers another one may be
            // faster.
            let mut select = Select::new();
            select.recv(&self.0.unblocks);
            select.recv(&self.0.receiver);
            match deadline {
                None => _ = select.ready(),
                Some(deadline) => {
                    _ = select.ready_deadline(deadline).map_err(|_| RecvError::TimedOut)?;
                }
            }
        }
    }
}

impl<T> Clone for MessageQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for MessageQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageQueue")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A message that was not sent, with the reason.
///
/// ```
/// use filoplume_runtime::MessageQueue;
///
/// let queue = MessageQueue::new(1);
/// queue.send("first").expect("there is room");
/// let error = queue.send("second").expect_err("it is full");
/// assert!(error.is_full());
/// assert_eq!(error.into_message(), "second");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The queue has no room.
    Full(T),
    /// The queue is closed.
    Closed(T),
}

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_message(self) -> T {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }

    /// Returns whether the queue was full. There may be room later.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// Returns whether the queue was closed.
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() { "Full(..)" } else { "Closed(..)" })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() { "the queue is full" } else { "the queue is closed" })
    }
}

impl<T> error::Error for SendError<T> {}

/// The reason why no message was received.
///
/// ```
/// use filoplume_runtime::{MessageQueue, RecvError};
///
/// let queue = MessageQueue::<u32>::new(1);
/// assert_eq!(queue.try_recv(), Err(RecvError::Empty));
/// queue.close();
/// assert_eq!(queue.recv(), Err(RecvError::Closed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The queue is empty, and the call does not wait.
    Empty,
    /// No message came in time.
    TimedOut,
    /// A thread called [`MessageQueue::unblock`].
    Unblocked,
    /// The queue is closed and empty.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the queue is empty",
            Self::TimedOut => "no message came in time",
            Self::Unblocked => "the receiver was unblocked",
            Self::Closed => "the queue is closed",
        })
    }
}

impl error::Error for RecvError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::{MessageQueue, RecvError, SendError, UNBLOCKS_MAX};

    const LONG: Duration = Duration::from_secs(30);

    /// Longer than a test waits, so this timeout never wakes a receiver.
    const LONGER: Duration = Duration::from_secs(3600);

    /// Starts this many receivers and returns a channel with their results. They are separate
    /// threads, so that a lost wake-up fails the test instead of blocking it.
    fn receivers(
        queue: &MessageQueue<u32>,
        count: usize,
    ) -> mpsc::Receiver<Result<u32, RecvError>> {
        let (tell, told) = mpsc::channel();
        for _ in 0..count {
            let (queue, tell) = (queue.clone(), tell.clone());
            thread::spawn(move || tell.send(queue.recv_timeout(LONGER)));
        }
        told
    }

    /// Two threads wake each other in turn, so that each one is already waiting when it is woken.
    /// Returns whether no wake-up is lost.
    fn play(turn: fn(&MessageQueue<u32>), expected: Result<u32, RecvError>) -> bool {
        let (one, other) = (MessageQueue::new(1), MessageQueue::new(1));
        let (done, is_done) = mpsc::channel();
        for (mine, theirs) in [(one.clone(), other.clone()), (other, one.clone())] {
            let done = done.clone();
            thread::spawn(move || {
                for _ in 0..300 {
                    assert_eq!(mine.recv_timeout(LONGER), expected);
                    turn(&theirs);
                }
                done.send(())
            });
        }
        turn(&one);
        (0..2).all(|_| is_done.recv_timeout(LONG).is_ok())
    }

    #[test]
    fn a_message_wakes_a_receiver() {
        assert!(play(|queue| queue.send(7).unwrap(), Ok(7)));
    }

    #[test]
    fn an_unblock_wakes_a_receiver() {
        assert!(play(MessageQueue::unblock, Err(RecvError::Unblocked)));
    }

    #[test]
    fn a_full_queue_gives_the_message_back_at_once() {
        let queue = MessageQueue::new(2);
        assert_eq!((queue.send('a'), queue.send('b')), (Ok(()), Ok(())));
        assert!(queue.is_full());
        assert_eq!(queue.send('c'), Err(SendError::Full('c')));
        assert_eq!(queue.try_recv(), Ok('a'));
        assert_eq!(queue.send('c'), Ok(()));
        assert_eq!((queue.len(), queue.capacity()), (2, 2));
    }

    #[test]
    fn a_capacity_of_zero_becomes_one() {
        let queue = MessageQueue::new(0);
        assert_eq!(queue.capacity(), 1);
        assert_eq!(queue.send(1), Ok(()));
    }

    #[test]
    fn a_closed_queue_is_drained_first() {
        let queue = MessageQueue::new(2);
        queue.send('a').unwrap();
        queue.close();
        queue.close();
        assert!(queue.is_closed());
        assert_eq!(queue.send('b').map_err(SendError::into_message), Err('b'));
        assert_eq!(queue.recv(), Ok('a'));
        assert_eq!(queue.recv(), Err(RecvError::Closed));
        assert_eq!(queue.try_recv(), Err(RecvError::Closed));
        assert_eq!(queue.recv_timeout(LONG), Err(RecvError::Closed));
    }

    #[test]
    fn receiving_from_an_empty_queue_fails_or_times_out() {
        let queue = MessageQueue::<()>::new(1);
        assert_eq!(queue.try_recv(), Err(RecvError::Empty));
        assert_eq!(queue.recv_timeout(Duration::from_millis(1)), Err(RecvError::TimedOut));
        assert!(queue.is_empty());
    }

    #[test]
    fn unblock_is_kept_for_the_next_receiver_and_comes_before_messages() {
        let queue = MessageQueue::new(1);
        queue.send('a').unwrap();
        queue.unblock();
        assert_eq!(queue.recv(), Err(RecvError::Unblocked));
        assert_eq!(queue.recv(), Ok('a'));
    }

    #[test]
    fn each_unblock_wakes_exactly_one_receiver() {
        let queue = MessageQueue::new(1);
        let told = receivers(&queue, 4);
        for _ in 0..3 {
            queue.unblock();
        }
        queue.send(7).unwrap();
        let outcomes: Vec<_> = (0..4).map(|_| told.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(
            outcomes.iter().filter(|outcome| **outcome == Err(RecvError::Unblocked)).count(),
            3
        );
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Ok(7)).count(), 1);
    }

    #[test]
    fn closing_wakes_all_receivers() {
        let queue = MessageQueue::new(1);
        let told = receivers(&queue, 4);
        queue.close();
        for _ in 0..4 {
            assert_eq!(told.recv_timeout(LONG).unwrap(), Err(RecvError::Closed));
        }
    }

    #[test]
    fn a_sent_message_is_received_once_even_if_the_queue_is_closed_meanwhile() {
        let queue = MessageQueue::new(8);
        let (tell_sent, sent) = mpsc::channel();
        let (tell_received, received) = mpsc::channel();
        for _ in 0..2 {
            let (sending, tell_sent) = (queue.clone(), tell_sent.clone());
            thread::spawn(move || {
                let mut sent = 0_u64;
                loop {
                    match sending.send(()) {
                        Ok(()) => sent += 1,
                        Err(SendError::Full(())) => thread::yield_now(),
                        Err(SendError::Closed(())) => return tell_sent.send(sent),
                    }
                }
            });
            let (receiving, tell_received) = (queue.clone(), tell_received.clone());
            thread::spawn(move || {
                let mut received = 0_u64;
                while receiving.recv().is_ok() {
                    received += 1;
                    if received == 10_000 {
                        receiving.close();
                    }
                }
                tell_received.send(received)
            });
        }
        let sum = |counts: mpsc::Receiver<u64>| -> u64 {
            (0..2).map(|_| counts.recv_timeout(LONG).unwrap()).sum()
        };
        assert_eq!(sum(received), sum(sent));
    }

    #[test]
    fn only_so_many_unblocks_are_kept() {
        let queue = MessageQueue::<()>::new(1);
        (0..UNBLOCKS_MAX + 10).for_each(|_| queue.unblock());
        let kept = std::iter::repeat_with(|| queue.try_recv());
        assert_eq!(kept.take_while(|it| *it == Err(RecvError::Unblocked)).count(), UNBLOCKS_MAX);
    }
}
