//! A long content that waits in a file until it is complete. Its parts are collected in memory, one
//! after the other, and a thread of the pool writes each to the file: writing may block.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use filoplume_http1::ContentDecoder;

use super::receive::{Beyond, ContentPlan, Receiving};
use super::{Http, Stage, Step};
use crate::budget::clients::ClientConnection;
use crate::budget::descriptors::HeldDescriptor;
use crate::budget::refusal::Refusal;
use crate::budget::spool::{SpoolError, SpoolFile, SpoolSpace};
use crate::buffers::Content;
use crate::clock::ProgressDeadline;
use crate::service::body::{Body, SpooledContent};

/// How much is written at once. Less would wake a thread more often, more would keep more of slow
/// contents in memory.
pub(super) const PART_BYTES: u64 = 256 * 1024;

/// While disk space is short, a content must arrive so fast that the space it has reserved would be
/// filled after this many seconds. Reserved space is lost to others, so a content that takes more
/// of it must be faster. The required pace is never slower than that for all scarce resources.
const SECONDS_WHILE_SHORT: u64 = 15 * 60;

/// How far a content may stay behind that pace. At the slowest pace for scarce resources, a part
/// arrives within this time.
const GRACE_WHILE_SHORT: Duration = Duration::from_secs(5);

/// The file of a content, from the first part that was written.
#[derive(Debug, Default)]
pub(super) struct Spooling {
    file: Option<SpoolFile>,
    /// When the next part must be written while disk space is short.
    while_short: Option<ProgressDeadline>,
    /// Since when a part waits to be written.
    waits_since: Option<Instant>,
}

impl Spooling {
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the deadline that applies while disk space is short. It is stricter for a content
    /// that holds much of the space.
    pub(super) fn deadline_while_short(&self) -> Option<Instant> {
        self.while_short.as_ref().map(ProgressDeadline::at)
    }

    /// Records that this many bytes were written by `now`, `waited` after they had arrived.
    fn note_progress(&mut self, bytes: usize, waited: Duration, now: Instant) {
        let Some(file) = &self.file else { return };
        let pace = file.reserved() / SECONDS_WHILE_SHORT;
        let due = || ProgressDeadline::new(now, GRACE_WHILE_SHORT, 1);
        let while_short = self.while_short.get_or_insert_with(due);
        while_short.set_pace(pace);
        while_short.excuse(waited);
        while_short.advance(bytes, now);
    }

    pub(super) fn into_body(self) -> Option<io::Result<Body>> {
        Some(SpooledContent::new(self.file?).map(Body::from_spooled))
    }
}

/// Returns how many bytes are collected before the first part is written. For a content that is
/// known to be long, that is no more than one part.
pub(super) fn collected_max(is_long: bool, buffered_max: u64) -> u64 {
    if is_long { PART_BYTES } else { buffered_max.max(PART_BYTES) }
}

impl<'a> ContentPlan<'a> {
    /// Sets the disk space for a content that waits in a file, and the client that it is for.
    pub(crate) fn on_disk(
        mut self,
        space: &'a SpoolSpace,
        client: Option<&'a Arc<ClientConnection>>,
    ) -> Self {
        self.disk = Some((space, client));
        self
    }

    /// Returns whether a content that is announced to be longer than what is collected would fit on
    /// the disk. Otherwise it is refused before it is sent. Nothing is reserved for what is only
    /// announced: that begins with the first part.
    pub(super) fn fits_on_disk(
        &self,
        beyond: &Beyond,
        decoder: &ContentDecoder,
        collected_max: u64,
    ) -> bool {
        let (Beyond::Spooled(_), Some((space, client))) = (beyond, self.disk) else { return true };
        let length = decoder.remaining_length().filter(|length| *length > collected_max);
        length.is_none_or(|length| space.may_begin(length, client))
    }
}

impl Receiving {
    /// Returns the length up to which a content of `expected` bytes is read in one piece.
    pub(super) fn at_once(&self, expected: usize) -> usize {
        match self.beyond {
            // One byte more, which shows that the content is longer.
            Beyond::Spooled(_) => usize::try_from(self.bytes_max.saturating_add(1))
                .map_or(expected, |max| max.min(expected)),
            Beyond::Refused | Beyond::Streamed => expected,
        }
    }
}

impl Http {
    /// Returns whether the content has a file, and its last part is not in the file yet.
    pub(super) fn has_unwritten(&self) -> bool {
        let Stage::Receiving(receiving) = &self.stage else { return false };
        receiving.beyond.has_file() && !receiving.content.is_empty()
    }

    /// Returns whether a part of a content was written, or could not be, and the rest of it may be
    /// in the input.
    pub(crate) fn has_written_part(&self) -> bool {
        match &self.stage {
            Stage::Receiving(receiving) => {
                receiving.beyond.has_file() && receiving.content.is_empty()
            }
            Stage::Refusing(..) => true,
            _ => false,
        }
    }

    pub(super) fn spool(&mut self) -> Step {
        if let Stage::Receiving(receiving) = &mut self.stage {
            // The part is kept even beyond the budget: it has arrived already, and waits for a
            // thread that writes it.
            let _ = receiving.charge.try_set(receiving.content.capacity());
            receiving.charge_head();
            if let Beyond::Spooled(spooling) = &mut receiving.beyond {
                spooling.waits_since = Some(Instant::now());
            }
        }
        Step::Spool
    }

    /// Writes the part of the content that is in memory to its file, after [`Step::Spool`]. This
    /// may block. If it fails, the request is refused. `held` is the descriptor of a new file, if
    /// there is one left.
    pub(crate) fn write_part(
        &mut self,
        space: &Arc<SpoolSpace>,
        client: Option<&Arc<ClientConnection>>,
        held: Option<HeldDescriptor>,
    ) {
        let Stage::Receiving(receiving) = &mut self.stage else { return };
        let Err(error) = receiving.write_part(space, client, held) else { return };
        let refusal = match error {
            SpoolError::NoDescriptor => Refusal::Descriptors,
            SpoolError::Full => Refusal::Spool,
            SpoolError::Failed(error) => {
                space.note_failure(&error);
                Refusal::Spool
            }
        };
        self.messages.content_abandoned();
        if let Stage::Receiving(receiving) = std::mem::replace(&mut self.stage, Stage::Head) {
            self.stage = Stage::Refusing(Box::new(receiving.request), refusal);
        }
    }
}

impl Receiving {
    fn write_part(
        &mut self,
        space: &Arc<SpoolSpace>,
        client: Option<&Arc<ClientConnection>>,
        held: Option<HeldDescriptor>,
    ) -> Result<(), SpoolError> {
        let Beyond::Spooled(spooling) = &mut self.beyond else { return Ok(()) };
        let file = match &mut spooling.file {
            Some(file) => file,
            none => {
                let length = self.decoder.remaining_length();
                let length = length.map(|left| left + self.content.len() as u64);
                let held = held.ok_or(SpoolError::NoDescriptor)?;
                none.insert(space.create(length, client, held)?)
            }
        };
        file.append(self.content.as_slice())?;
        // The time until it was written does not count against the peer.
        let waited = spooling.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.pace.excuse(waited);
        spooling.note_progress(self.content.len(), waited, Instant::now());
        // A slow peer keeps no buffer between two parts.
        self.content = Content::default();
        self.charge.try_set(0);
        self.bytes_max = PART_BYTES;
        Ok(())
    }
}
