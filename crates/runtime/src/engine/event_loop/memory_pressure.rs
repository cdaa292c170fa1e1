//! Expiring connections while memory, or disk space for contents, is short: those that hold some of
//! it and make too little progress.

use std::time::{Duration, Instant};

use super::{EventLoop, Readiness};
use crate::engine::connection::Connection;
use crate::protocol::Waiting;

/// How often a loop checks its connections while memory is short.
const PRESSURE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a head may take while memory is short.
const PRESSED_HEAD_TIMEOUT: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Expires the connections whose deadline under pressure has passed. Returns the time until the
    /// next check, if memory or disk space is short.
    ///
    /// No loop sleeps through the beginning of a shortage: the thread that causes it wakes them.
    pub(super) fn expire_under_pressure(&mut self, now: Instant) -> Option<Duration> {
        if !self.handle.engine.memory.is_pressed() {
            return None;
        }
        if let Some(left) = self.pressure_check_at.and_then(|at| at.checked_duration_since(now)) {
            if !left.is_zero() {
                return Some(left);
            }
        }
        self.pressure_check_at = Some(now + PRESSURE_CHECK_INTERVAL);
        let head_timeout = self.handle.engine.config.head_timeout;
        let memory = &self.handle.engine.memory;
        let (is_memory_short, is_disk_short) = (memory.is_short(), memory.is_disk_short());
        let is_late = |connection: &Connection| {
            let deadline = if is_memory_short {
                connection.pressed_deadline(head_timeout)
            } else if is_disk_short {
                connection.guest.deadline_while_disk_short()
            } else {
                None
            };
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let late: Vec<_> = self
            .slab
            .parked()
            .filter(|(_, connection)| is_late(connection))
            .map(|(token, _)| token)
            .collect();
        for token in late {
            let Some(connection) = self.slab.parked_mut(token) else { continue };
            connection.deadline = now;
            connection.guest.press();
            self.ready.push(token, Readiness::Expired);
        }
        Some(PRESSURE_CHECK_INTERVAL)
    }
}

impl Connection {
    /// Returns until when the connection may hold its memory while memory is short. Returns `None`
    /// if it holds none, or a handler has it.
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
            _ => self.guest.pressed_deadline(),
        }
    }
}
