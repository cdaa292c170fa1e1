//! What became of the messages of a room, or of all rooms with names.

use std::sync::atomic::{AtomicU64, Ordering};

use super::room::Broadcast;
use crate::observe::Samples;

#[derive(Debug, Default)]
pub(super) struct RoomCounts {
    messages: AtomicU64,
    sent: AtomicU64,
    slow: AtomicU64,
}

impl RoomCounts {
    pub(super) fn add(&self, broadcast: Broadcast) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(broadcast.sent as u64, Ordering::Relaxed);
        if broadcast.slow > 0 {
            self.slow.fetch_add(broadcast.slow as u64, Ordering::Relaxed);
        }
    }

    /// Adds these counts to the metrics.
    pub(super) fn collect(&self, label: (&str, &str), samples: &mut Samples) {
        samples.counter_of(
            "filoplume_room_messages",
            "Messages to rooms with members.",
            &[label],
            self.messages.load(Ordering::Relaxed),
        );
        for (result, count) in [("sent", &self.sent), ("slow", &self.slow)] {
            samples.counter_of(
                "filoplume_room_deliveries",
                "Messages for single members of rooms.",
                &[label, ("result", result)],
                count.load(Ordering::Relaxed),
            );
        }
    }
}
