//! Options of a route that exclude each other.

use super::{RouteOptions, Takes};

impl RouteOptions {
    /// Returns the mistakes of options that exclude each other. Each says what to do instead.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        #[cfg(feature = "spool")]
        if self.promises.is_spooled && self.takes == Takes::Content {
            mistakes.push(
                "the route is spooled, but a parameter collects the content in memory: take it as \
                 `Body`, `Multipart` or `Request`, or leave out `spooled()`"
                    .to_owned(),
            );
        }
        let Some(permits) = &self.permits else { return mistakes };
        let name = permits.name();
        if self.promises.is_vital {
            mistakes.push(format!(
                "the route is vital and uses the permits \"{name}\": it would wait for requests \
                 that hold them; leave out `vital()` or `uses(..)`"
            ));
        }
        if let Some(second) = &self.second_permits {
            let second = second.name();
            mistakes.push(format!(
                "the route uses the permits \"{name}\" and \"{second}\": a route can use only one \
                 kind, because two that are taken one after the other can block each other; keep \
                 `uses(..)` for the scarcer one, and take the other in the handler with \
                 `Permits::take`, always in this order"
            ));
        }
        if self.takes == Takes::Stream && !self.is_spooled() {
            mistakes.push(format!(
                "the route uses the permits \"{name}\", but its handler reads the content as it \
                 arrives: a slow client would hold a permit until its last byte; add `.spooled()` \
                 (feature `spool`), so that the handler is called when the content is there, or \
                 replace `uses(..)` by `Permits::take` in the handler, behind the content"
            ));
        }
        mistakes
    }

    fn is_spooled(&self) -> bool {
        #[cfg(feature = "spool")]
        return self.promises.is_spooled;
        #[cfg(not(feature = "spool"))]
        false
    }
}
