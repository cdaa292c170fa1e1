//! What a loop does with the messages of other threads, and how many of them between two polls.

use std::time::{Duration, Instant};

use super::{EventLoop, Message, Readiness, Turn};
use crate::engine::connection::slab::Missed;
use crate::engine::exchange::AnswerTo;

/// Maximum number of messages between two polls. Threads that fill bodies may send them without
/// end.
pub(super) const MESSAGES_MAX: usize = 32;

/// How long connections that other threads notify have their turns before the next poll. Such a
/// turn may write some hundred kilobytes, and encrypt them. Others must not wait for many of these.
pub(super) const NOTIFIED_TIME: Duration = Duration::from_millis(1);

impl EventLoop {
    /// Handles messages until one of them asks for a turn.
    pub(super) fn next_message(&mut self, now: Instant) -> Option<Turn> {
        // Other messages take less time than reading the clock for each of them is worth.
        if self.notified_since.is_some_and(|since| since.elapsed() >= NOTIFIED_TIME) {
            return None;
        }
        while self.messages_in_row < MESSAGES_MAX {
            let message = self.inbox.try_recv().ok()?;
            self.messages_in_row += 1;
            if let Some(turn) = self.receive(message, now) {
                return Some(turn);
            }
        }
        None
    }

    /// Handles a message from another thread. Returns the turn that it asks for, if any.
    fn receive(&mut self, message: Message, now: Instant) -> Option<Turn> {
        match message {
            Message::Returned(mut connection) => {
                self.unwatch_client(connection.token());
                if self.apply_missed(&mut connection)
                    || self.is_draining
                    || connection.guest.is_ready()
                {
                    return Some(Turn::Serve(connection, Readiness::Io));
                }
                self.park(connection, now);
                None
            }
            Message::Closed(token) => {
                self.release(token);
                None
            }
            Message::WatchClient(token, latch) => {
                self.watch_client(token, latch);
                None
            }
            Message::Notify(token) => self.notified(token),
            Message::Adopt(accepted) => Some(Turn::Serve(self.adopt(accepted, now), Readiness::Io)),
            Message::Late(mut call) => {
                if let AnswerTo::Connection(reply_to) = &mut call.answer_to {
                    self.apply_missed(&mut reply_to.connection);
                }
                Some(Turn::Refuse(call))
            }
            Message::StillWaiting(mut connection, route) => {
                self.apply_missed(&mut connection);
                Some(Turn::WaitOn(connection, route))
            }
            Message::MakeRoom(asker, scarce) => {
                let mut shed = self.make_room(scarce, now)?;
                shed.asker = Some(asker);
                Some(Turn::Shed(shed))
            }
            Message::Shed(waiting) => self.find_descriptor(waiting, now),
            #[cfg(unix)]
            Message::CloneListeners(sender) => {
                self.clone_listeners(&sender);
                None
            }
            #[cfg(unix)]
            Message::Resume(resumed) => Some(self.resume(*resumed, now)),
            #[cfg(unix)]
            Message::Ping(sender) => {
                // The thread that asked may have given up.
                let _ = sender.send(());
                None
            }
            #[cfg(feature = "waits")]
            Message::CountWaits(sender) => self.tell_waits(&sender),
            Message::RoomMade => {
                self.accept_again_at = None;
                self.failed_room_requests = 0;
                None
            }
        }
    }
    fn notified(&mut self, token: usize) -> Option<Turn> {
        self.notified_since.get_or_insert_with(Instant::now);
        Some(Turn::Serve(self.slab.take(token, Missed::Io)?, Readiness::Notified))
    }
}
