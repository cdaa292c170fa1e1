//! What a raw protocol waits for, and for how long.

use std::sync::Arc;
use std::time::Instant;

use super::{Event, Raw, Shutdown, Side, Stage};
use crate::budget::account::Account;
use crate::clock::{Clock, Pace};
use crate::config::ServerConfig;
use crate::protocol::Waiting;
use crate::service::tcp::Closed;

impl Raw {
    /// Called when `bytes` bytes have arrived.
    pub(crate) fn has_read(&mut self, bytes: usize, now: Instant) {
        let held = self.held.as_mut().map(|held| &mut held.pace);
        for pace in self.pace.as_deref_mut().into_iter().chain(held) {
            pace.advance(bytes, now);
        }
    }

    /// Returns whether the protocol has calls without an answer. A connection that ends waits for
    /// no answers.
    pub(crate) fn awaits_answers(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Open)
            && self.calls.as_ref().is_some_and(|calls| calls.open() > 0)
    }

    /// Called when the deadline has passed and everything is sent. Returns whether the connection
    /// continues to wait: a peer that waits for answers may be silent.
    #[cold]
    pub(crate) fn keep_alive(&self) -> bool {
        self.awaits_answers() && !self.is_pressed && self.timeout.is_none() && self.pace.is_none()
    }

    /// Called when the peer has closed its direction.
    pub(crate) fn end_of_input(&mut self) {
        if self.input == Side::Open {
            self.input = Side::Ended;
        }
    }

    /// Called when the deadline has passed. If `is_stuck`, the peer does not read its output, so
    /// nothing more is sent.
    pub(crate) fn expire(&mut self, is_stuck: bool) {
        if is_stuck {
            self.break_off(Closed::TimedOut);
        } else {
            let is_pressed = std::mem::take(&mut self.is_pressed);
            self.expired = Some(if is_pressed { Event::MemoryPressure } else { Event::Deadline });
        }
    }

    /// Called while the server drains. Lets the protocol be told of the shutdown, once and only if
    /// there is no incomplete message. Returns whether it still has to be told.
    pub(crate) fn drain(&mut self) -> bool {
        let is_idle = self.seen == 0
            && !self.awaits_answers()
            && self.input == Side::Open
            && matches!(self.stage, Stage::New | Stage::Open);
        if is_idle && self.shutdown == Shutdown::NotBegun {
            self.shutdown = Shutdown::Due;
        }
        is_idle && self.shutdown == Shutdown::Due
    }

    /// Returns the deadline for the peer to send more, or the protocol's own deadline, if the
    /// connection waits from now on. `None` keeps the current deadline.
    #[inline(always)]
    pub(crate) fn deadline(&mut self, clock: &Clock, config: &ServerConfig) -> Option<Instant> {
        self.waits_since = Some(clock.now());
        match self.stage {
            Stage::Lingering(_, until) => Some(until),
            _ => match (self.timeout, &self.pace) {
                (Some(timeout), _) => Some(timeout),
                (None, Some(pace)) => Some(pace.deadline()),
                (None, None) => Some(clock.after(config.keep_alive_timeout)),
            },
        }
    }

    /// Returns what a parked connection waits for.
    pub(crate) fn waits_for(&self) -> Waiting {
        match (&self.stage, self.pressed_deadline(), self.waits_since) {
            (Stage::Lingering(..), ..) => Waiting::Lingering,
            (Stage::New | Stage::Open, Some(until), _) => Waiting::Content { until },
            (Stage::New | Stage::Open, None, Some(since)) => Waiting::Stream { since },
            _ => Waiting::Other,
        }
    }

    /// Called when the peer does not take what it is sent: what waits for it is charged.
    #[cold]
    pub(crate) fn stall(&self, account: &Arc<Account>) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.queue.stall(account);
        }
    }

    /// Returns until when the peer may leave its message incomplete while memory is short. Returns
    /// `None` if nothing of a message is held.
    pub(crate) fn pressed_deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|held| &held.pace);
        let paces = self.pace.as_deref().into_iter().chain(held);
        paces.map(Pace::pressed_deadline).min()
    }

    /// Called before [`expire`](Self::expire), if memory is short and the peer was too slow.
    pub(crate) fn press(&mut self) {
        self.is_pressed = true;
    }
}
