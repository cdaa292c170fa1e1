//! The requests of a protocol that an HTTP service answers, several at once.
//!
//! The connection stays with its loop. A thread that has an answer puts it into the queue here and
//! wakes the connection, as if its socket were ready. The owner of the connection looks into the
//! queue before the connection waits, and a wake-up of a connection that is not waiting is
//! remembered by its loop: so no answer is left behind.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::service::Site;
use crate::service::mailbox::WakeConnection;
use crate::service::request::Request;
use crate::service::response::{Response, ResponseBody};
use crate::sync::Mutex;

/// The calls of one connection that are not answered yet.
pub(crate) struct Calls {
    asked: VecDeque<Ask>,
    /// How many are asked, or answered and not delivered.
    open: usize,
    answers: Arc<Answers>,
}

/// A request that a protocol has asked for, and the place for its answer.
pub(crate) struct Ask {
    pub(crate) request: Request,
    pub(crate) site: Arc<Site>,
    pub(crate) slot: AnswerSlot,
}

/// The answers that wait for the protocol.
struct Answers {
    arrived: Mutex<VecDeque<(u64, Response)>>,
    /// Weak, because a handler may take longer than the server lives.
    event_loop: Weak<dyn WakeConnection>,
    token: usize,
}

/// The place for one answer. If it is dropped without one, the answer is a `500`.
pub(crate) struct AnswerSlot {
    answers: Arc<Answers>,
    number: u64,
    is_filled: bool,
}

impl Calls {
    pub(crate) fn new(event_loop: Weak<dyn WakeConnection>, token: usize) -> Self {
        let answers = Answers { arrived: Mutex::new(VecDeque::new()), event_loop, token };
        Self { asked: VecDeque::new(), open: 0, answers: Arc::new(answers) }
    }

    pub(crate) fn ask(&mut self, number: u64, request: Request, site: Arc<Site>) {
        let slot = AnswerSlot { answers: Arc::clone(&self.answers), number, is_filled: false };
        self.asked.push_back(Ask { request, site, slot });
        self.open += 1;
    }

    /// Returns how many calls the protocol has no answer to.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Takes the next request, in the order in which they were asked for.
    pub(crate) fn next_asked(&mut self) -> Option<Ask> {
        self.asked.pop_front()
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.arrived.lock().is_empty()
    }

    /// Takes the next answer, in the order in which they arrived.
    pub(crate) fn next_answer(&mut self) -> Option<(u64, Response)> {
        let answer = self.answers.arrived.lock().pop_front()?;
        self.open -= 1;
        Some(answer)
    }
}

impl AnswerSlot {
    pub(crate) fn fill(mut self, response: Response) {
        self.deliver(response);
    }

    fn deliver(&mut self, mut response: Response) {
        if response.is_upgrade() || matches!(response.body(), ResponseBody::Pushed(_)) {
            tracing::error!("a handler upgrades or pushes: that needs a connection of its own");
            response = Response::new(500);
        }
        self.is_filled = true;
        self.answers.arrived.lock().push_back((self.number, response));
        if let Some(event_loop) = self.answers.event_loop.upgrade() {
            event_loop.wake_connection(self.answers.token);
        }
    }
}

impl Drop for AnswerSlot {
    fn drop(&mut self) {
        if !self.is_filled {
            self.deliver(Response::new(500));
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("open", &self.open).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("request", &self.request).finish_non_exhaustive()
    }
}
