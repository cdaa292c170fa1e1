//! The reason why a request has no seat.

use std::fmt;
use std::time::Duration;

use crate::budget::permits::Permits;
use crate::budget::refusal::Refusal;

/// The reason why there is no seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The seats of the route.
    pub(crate) taken: usize,
    /// The taken seats of all routes.
    pub(crate) taken_in_all: usize,
    pub(crate) seats_max: usize,
    /// The waiting requests of the route.
    pub(crate) waiting: usize,
    /// The seats of the client and its waiting requests of the route, if the client is counted.
    pub(crate) client: Option<(usize, usize)>,
    /// How long one more request would have waited, if that is known.
    pub(crate) wait: Option<Duration>,
    /// The permits that the request needs in addition to a seat, and how many its client holds.
    pub(crate) permits: Option<(Permits, usize)>,
    /// There are threads for the route, but no processor time, because its calls compute.
    pub(crate) lacks_processor: bool,
    /// The request could wait, but there is no memory for that.
    pub(crate) lacks_memory: bool,
}

impl Full {
    /// Returns the reason as it is counted.
    pub(crate) fn refusal(&self) -> Refusal {
        if self.lacks_memory { Refusal::Memory } else { Refusal::Overloaded }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, taken_in_all, seats_max, waiting, .. } = self;
        write!(
            f,
            "the route has {taken} of {seats_max} threads, {taken_in_all} are taken, {waiting} of \
             its requests wait"
        )?;
        if let Some((taken, waiting)) = self.client {
            write!(f, ", its client has {taken} threads and {waiting} of these requests")?;
        }
        if self.lacks_processor {
            write!(f, ", its calls compute and keep the processors busy")?;
        }
        match &self.permits {
            Some((permits, held)) => {
                write!(
                    f,
                    ", {} of {} permits \"{}\" are free",
                    permits.available(),
                    permits.count(),
                    permits.name()
                )?;
                if self.client.is_some() {
                    write!(f, ", its client holds {held}")?;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }
}
