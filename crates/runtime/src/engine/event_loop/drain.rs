//! The end of a loop: the lame-duck time, then the drain.

use std::time::Instant;

use super::{EventLoop, Readiness};

impl EventLoop {
    /// Moves on to the next phase of the shutdown if it is due.
    #[cold]
    pub(super) fn continue_to_stop(&mut self, now: Instant) {
        self.handle.engine.end_lame_duck(now);
        if !self.is_draining && self.handle.engine.is_draining() {
            self.drain();
        }
    }

    /// Begins to drain: accepts what is in the backlog and nothing after that, and serves every
    /// connection once more.
    fn drain(&mut self) {
        self.is_draining = true;
        #[cfg(unix)]
        if self.handle.engine.is_handing_over() {
            self.leave_listeners();
        }
        for accepting in &mut self.listeners {
            accepting.is_ready = true;
        }
        for (token, _) in self.slab.parked() {
            self.ready.push(token, Readiness::Drain);
        }
    }

    pub(super) fn has_drained(&mut self, now: Instant) -> bool {
        if self.listeners.is_empty()
            && self.waiting.is_none()
            && self.slab.len() == 0
            && !self.may_receive()
        {
            return true;
        }
        let is_late = self.handle.engine.drain_deadline().is_some_and(|deadline| deadline <= now);
        if is_late {
            self.watched.cancel_all(&self.handle.engine);
            self.handle.engine.give_up();
            tracing::warn!(
                server = self.handle.engine.config.thread_name,
                connections = self.slab.len(),
                "the drain deadline has passed: closing the remaining connections"
            );
        }
        is_late
    }

    /// Returns whether connections of the previous process may still come. If the loop ended, they
    /// would be closed instead of being passed on to the next process.
    fn may_receive(&self) -> bool {
        #[cfg(unix)]
        if self.handle.engine.is_handing_over() && self.handle.engine.is_receiving() {
            return true;
        }
        // The last one may have come after the loop looked into its inbox.
        !self.inbox.is_empty()
    }
}
