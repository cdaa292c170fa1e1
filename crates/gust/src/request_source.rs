//! The requests of one thread: which request is sent next, and when it is due.

use crate::exchange::Exchange;
use crate::plan::Plan;
use crate::schedule::Share;
use crate::shared::{Budget, Shared};
use crate::tally::Tally;
use crate::units::Nanos;

/// The source of the requests of one thread.
pub(crate) struct RequestSource<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) shared: &'a Shared,
    pub(crate) budget: Budget,
    /// `None` in a closed loop.
    pub(crate) share: Option<Share>,
    /// The number of requests started, which selects the next template.
    pub(crate) position: usize,
}

impl RequestSource<'_> {
    pub(crate) fn is_used_up(&self) -> bool {
        self.budget.is_used_up(self.shared)
    }

    /// Returns when the next request is due. It is `None` in a closed loop, and when no request is
    /// left.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        let share = self.share.as_ref().filter(|_| !self.is_used_up());
        share.map(Share::next_due)
    }

    pub(crate) fn begin_due(
        &mut self,
        exchange: &mut Exchange,
        tally: &mut Tally,
        now: Nanos,
    ) -> bool {
        if !self.budget.take(self.shared, now) {
            return false;
        }
        let Some(share) = &mut self.share else { return false };
        let due = share.next_due();
        share.advance();
        exchange.begin(self.next_template(), due, now, tally);
        true
    }

    /// Starts requests until the pipeline is full, in a closed loop.
    #[inline]
    pub(crate) fn fill_pipeline(&mut self, exchange: &mut Exchange, tally: &mut Tally, now: Nanos) {
        while exchange.in_flight() < self.plan.depth && self.budget.take(self.shared, now) {
            let template = self.next_template();
            exchange.begin(template, now, now, tally);
        }
    }

    #[inline]
    fn next_template(&mut self) -> u16 {
        if self.plan.requests.only().is_some() {
            return 0;
        }
        self.position += 1;
        self.plan.requests.at(self.position)
    }
}
