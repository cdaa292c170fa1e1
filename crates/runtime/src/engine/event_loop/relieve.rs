//! Ending those that hold memory and move too little, while memory is short.

use std::time::{Duration, Instant};

use super::{EventLoop, Readiness};
use crate::engine::connection::Connection;
use crate::protocol::Waiting;

/// How often a loop looks at its connections while memory is short.
const RELIEF_INTERVAL: Duration = Duration::from_millis(250);

/// A head may be on its way for so long while memory is short.
const PRESSED_HEAD_TIMEOUT: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Has those expire whose deadline under pressure has passed. Returns when to look again, if
    /// memory is short.
    pub(super) fn relieve(&mut self, now: Instant) -> Option<Duration> {
        if !self.handle.engine.memory.is_pressed() {
            return None;
        }
        if let Some(left) = self.relieve_again_at.and_then(|at| at.checked_duration_since(now)) {
            if !left.is_zero() {
                return Some(left);
            }
        }
        let is_new = self.relieve_again_at.is_none_or(|at| now > at + RELIEF_INTERVAL);
        self.relieve_again_at = Some(now + RELIEF_INTERVAL);
        if is_new {
            // Those that sleep hold memory as well, and nothing tells them that it has become
            // short.
            self.handle.engine.wake_loops();
        }
        let head_timeout = self.handle.engine.config.head_timeout;
        let is_late = |connection: &Connection| {
            connection.pressed_deadline(head_timeout).is_some_and(|deadline| deadline <= now)
        };
        let late: Vec<_> = self
            .table
            .parked()
            .filter(|(_, connection)| is_late(connection))
            .map(|(token, _)| token)
            .collect();
        for token in late {
            let Some(connection) = self.table.parked_mut(token) else { continue };
            connection.deadline = now;
            self.ready.push(token, Readiness::Expired);
        }
        Some(RELIEF_INTERVAL)
    }
}

impl Connection {
    /// Until when it may hold what it holds while memory is short. `None` if that is nothing, or a
    /// handler has it.
    fn pressed_deadline(&self, head_timeout: Duration) -> Option<Instant> {
        if let Some(unsent) = &self.unsent {
            return Some(unsent.pressed_deadline());
        }
        match self.guest.waits_for(!self.leftover.is_empty()) {
            Waiting::Idle => None,
            Waiting::Head => {
                let begun_at = self.deadline.checked_sub(head_timeout)?;
                Some(begun_at + PRESSED_HEAD_TIMEOUT)
            }
            Waiting::Other => self.guest.as_http()?.pressed_deadline(),
        }
    }
}
