//! Sending response bodies that other threads push.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use filoplume_http1::{CHUNK_END, Headers, encode_chunk_head, encode_last_chunk};

use super::send_framing::SendFraming;
use super::{Http, Stage, Step};
use crate::budget::account::Account;
use crate::budget::streams::OpenPushed;
use crate::buffers::Buffers;
use crate::config::ServerConfig;
use crate::execution::key::Route;
use crate::service::mailbox::{End, Rest, WakeConnection};
use crate::service::pushed::{KeepAlive, Outcome, Pushed};

/// Maximum number of bytes taken from the mailbox at once.
const TAKE_BYTES: usize = 64 * 1024;

/// The shortest time after which a silent body is looked at again. Without it a short
/// `keep_alive_timeout`, which is meant for idle connections, would keep the loop busy.
const RENEWAL_MIN: Duration = Duration::from_secs(1);

/// A response body that other threads push.
pub(super) struct Pushing {
    /// Ends the mailbox when it is dropped, so that senders learn of every end of the connection.
    body: Box<Pushed>,
    framing: SendFraming,
    route: Route,
    /// Counts the response as long as it is open.
    open: Option<OpenPushed>,
    /// When something was sent last. Keep-alive bytes are due an interval later.
    sent_at: Instant,
}

/// A pushed body that has failed, to be reported.
#[derive(Debug)]
pub(crate) struct PushFailed {
    pub(crate) route: Route,
    pub(crate) error: io::Error,
}

impl Pushing {
    pub(super) fn new(body: Box<Pushed>, framing: SendFraming, route: Route, now: Instant) -> Self {
        Self { body, framing, route, open: None, sent_at: now }
    }

    pub(super) fn ends_with_connection(&self) -> bool {
        self.framing.ends_with_connection()
    }

    /// Returns when something was sent last.
    pub(super) fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Returns when the connection must be served even if nothing happens. A body without
    /// keep-alive bytes has no deadline. It uses that of an idle connection and renews it, because
    /// an entry for a deadline far away would stay in the loop's heap until then.
    pub(super) fn deadline(&self, now: Instant, config: &ServerConfig) -> Instant {
        let renewal = config.keep_alive_timeout.max(RENEWAL_MIN);
        let silence = now.saturating_duration_since(self.sent_at);
        now + match &self.body.options.keep_alive {
            // The renewal counts from now. Counted from `sent_at`, it could lie in the past, and
            // the loop would look all the time.
            Some(keep_alive) => keep_alive.interval.saturating_sub(silence).min(renewal),
            None => renewal,
        }
    }

    /// Appends the framing that precedes this many bytes of the body.
    fn begin(framing: SendFraming, bytes: usize, output: &mut Vec<u8>) {
        if let SendFraming::Chunked = framing {
            encode_chunk_head(bytes, output);
        }
    }

    /// Appends the framing that follows these bytes.
    fn end(framing: SendFraming, output: &mut Vec<u8>) {
        if let SendFraming::Chunked = framing {
            output.extend_from_slice(CHUNK_END);
        }
    }
}

impl fmt::Debug for Pushing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushing")
            .field("body", &self.body)
            .field("framing", &self.framing)
            .finish_non_exhaustive()
    }
}

impl Http {
    /// Returns whether the response body is pushed.
    pub(crate) fn is_pushing(&self) -> bool {
        matches!(self.stage, Stage::Pushing(_))
    }

    /// Returns whether the current request is a `HEAD` request, whose response has no content.
    pub(crate) fn is_head_request(&self) -> bool {
        self.messages.is_head_request()
    }

    /// Says which connection other threads must wake. Called before anything is taken, so that
    /// bytes that arrive later cause a notification.
    #[cold]
    pub(crate) fn attach(&self, event_loop: Weak<dyn WakeConnection>, token: usize) {
        if let Stage::Pushing(pushing) = &self.stage {
            if let Some(mailbox) = pushing.body.mailbox() {
                mailbox.attach(event_loop, token);
            }
        }
    }

    /// Counts the response as long as it is open.
    pub(crate) fn count_pushed(&mut self, open: OpenPushed) {
        if let Stage::Pushing(pushing) = &mut self.stage {
            pushing.open = Some(open);
        }
    }

    /// Called when the client does not take what it is sent: what waits for it is charged.
    #[cold]
    pub(crate) fn stall(&self, account: &Arc<Account>) {
        if let Stage::Pushing(pushing) = &self.stage {
            if let Some(mailbox) = pushing.body.mailbox() {
                mailbox.queue.stall(account);
            }
        }
    }

    /// Takes what other threads have pushed.
    pub(super) fn push(&mut self, buffers: &mut Buffers) -> Step {
        let Stage::Pushing(pushing) = &mut self.stage else { return Step::Again };
        let Buffers { output, clock, .. } = buffers;
        let framing = pushing.framing;
        match pushing.body.next_of_beginning() {
            Ok(None) => {}
            Ok(Some(piece)) => {
                Pushing::begin(framing, piece.len(), output);
                output.extend_from_slice(&piece);
                Pushing::end(framing, output);
                pushing.sent_at = clock.now();
                pushing.body.count(piece.len());
                return Step::Pushed { has_more: true };
            }
            Err(error) => return self.push_failed(error),
        }
        let Some(mailbox) = pushing.body.mailbox() else { return Step::Again };
        let (taken, rest) = mailbox.queue.take_framed(TAKE_BYTES, output, |bytes, output| {
            Pushing::begin(framing, bytes, output);
        });
        if taken > 0 {
            Pushing::end(framing, output);
            pushing.sent_at = clock.now();
            pushing.body.count(taken);
        }
        match rest {
            Rest::Nothing if taken == 0 => Step::AwaitPush,
            Rest::Nothing => Step::Pushed { has_more: false },
            Rest::Some => Step::Pushed { has_more: true },
            Rest::End(End::Failed(error)) => self.push_failed(error),
            Rest::End(End::Finished(trailers)) => {
                pushing.body.ended(Outcome::Complete);
                let trailers = trailers.filter(|_| pushing.body.options.sends_trailers);
                self.pushed_all(framing, trailers.as_deref(), buffers)
            }
            Rest::End(End::Stopping) => self.pushed_all(framing, None, buffers),
        }
    }

    /// Ends the response so that the client notices that it is incomplete.
    fn push_failed(&mut self, error: io::Error) -> Step {
        let Stage::Pushing(pushing) = &mut self.stage else { return Step::Again };
        let route = pushing.route;
        pushing.body.ended(Outcome::Failed(&error));
        self.break_off();
        Step::PushFailed(Box::new(PushFailed { route, error }))
    }

    /// Ends the response.
    fn pushed_all(
        &mut self,
        framing: SendFraming,
        trailers: Option<&Headers>,
        buffers: &mut Buffers,
    ) -> Step {
        if let SendFraming::Chunked = framing {
            encode_last_chunk(trailers.unwrap_or(&Headers::new()), &mut buffers.output);
        }
        self.stage = Stage::Head;
        self.messages.write_done();
        self.settle(!buffers.input.is_empty());
        Step::Pushed { has_more: false }
    }

    /// Called when the deadline has passed and everything is sent. Sends the keep-alive bytes if
    /// they are due. Returns whether the body is pushed: such a connection does not expire.
    #[cold]
    pub(crate) fn keep_alive(&mut self, buffers: &mut Buffers) -> bool {
        let Stage::Pushing(pushing) = &mut self.stage else { return false };
        let Buffers { output, clock, .. } = buffers;
        if let Some(KeepAlive { interval, bytes }) = &pushing.body.options.keep_alive {
            if clock.now().saturating_duration_since(pushing.sent_at) >= *interval {
                Pushing::begin(pushing.framing, bytes.len(), output);
                output.extend_from_slice(bytes);
                Pushing::end(pushing.framing, output);
                pushing.sent_at = clock.now();
                let length = bytes.len();
                pushing.body.count(length);
            }
        }
        true
    }

    /// Tells senders that the server stops. Returns whether the body ends for that reason.
    #[cold]
    pub(crate) fn stop_pushing(&self) -> bool {
        let Stage::Pushing(pushing) = &self.stage else { return false };
        let Some(mailbox) = pushing.body.mailbox() else { return false };
        mailbox.queue.stop(pushing.body.options.is_endless);
        pushing.body.options.is_endless
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::service::pushed::Shared;

    #[test]
    fn a_silent_pushed_body_holds_a_few_hundred_bytes() {
        let bytes = size_of::<Pushing>() + size_of::<Pushed>() + size_of::<Shared>();
        assert!(bytes <= 400, "{bytes}");
    }

    #[test]
    fn pushed_bytes_are_one_chunk_or_are_sent_as_they_are() {
        let framed = |framing| {
            let mut output = Vec::new();
            Pushing::begin(framing, 26, &mut output);
            output.push(b'.');
            Pushing::end(framing, &mut output);
            String::from_utf8(output).unwrap()
        };
        assert_eq!(framed(SendFraming::Chunked), "1a\r\n.\r\n");
        assert_eq!(framed(SendFraming::UntilClose), ".");
    }
}
