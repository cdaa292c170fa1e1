//! The WebSockets of an app, and their messages.

use std::sync::atomic::{AtomicU64, Ordering};

use super::open_metrics::OpenMetrics;

/// How many WebSockets are open, and how many messages they have received and sent.
#[derive(Debug, Default)]
pub(crate) struct SocketCounts {
    opened: AtomicU64,
    closed: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl SocketCounts {
    pub(crate) fn open_one(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn close_one(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts messages of clients.
    pub(crate) fn receive(&self, messages: u64) {
        self.received.fetch_add(messages, Ordering::Relaxed);
    }

    /// Counts a message that was queued for a client.
    pub(crate) fn send_one(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut OpenMetrics) {
        // In this order, so that no socket seems to be closed before it was opened.
        let closed = self.closed.load(Ordering::Relaxed);
        let opened = self.opened.load(Ordering::Relaxed);
        text.family("filoplume_websockets", "gauge", "Open WebSockets.");
        text.gauge("", opened.saturating_sub(closed));
        text.family("filoplume_websockets_opened", "counter", "WebSockets that were opened.");
        text.counter("", "", opened);
        text.family("filoplume_websocket_messages", "counter", "Messages of WebSockets.");
        text.counter("", "direction=\"received\"", self.received.load(Ordering::Relaxed));
        text.counter("", "direction=\"sent\"", self.sent.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_sockets_are_not_open_and_each_direction_is_counted() {
        let counts = SocketCounts::default();
        (0..3).for_each(|_| counts.open_one());
        counts.close_one();
        counts.receive(5);
        counts.send_one();
        let mut text = OpenMetrics::with_capacity(0);
        counts.write(&mut text);
        let text = text.finish();
        for line in [
            "filoplume_websockets 2",
            "filoplume_websockets_opened_total 3",
            "filoplume_websocket_messages_total{direction=\"received\"} 5",
            "filoplume_websocket_messages_total{direction=\"sent\"} 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}: {text}");
        }
    }
}
