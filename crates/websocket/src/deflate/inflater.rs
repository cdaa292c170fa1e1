//! Inflates messages, in steps that do not exceed a limit.

use flate2::{Decompress, FlushDecompress, Status};

use super::params::DeflateParams;
use super::{TAIL, streams};
use crate::error::ProtocolError;
use crate::role::Role;

/// The first size of a message's buffer. The buffer doubles each time it is full.
const STEP_BYTES: usize = 1024;
/// Most final blocks in a message. They are allowed (RFC 7692 section 7.2.3.4) and rare, and each
/// takes two bytes and costs a new stream.
const FINAL_BLOCKS_MAX: usize = 16;

/// Inflates the messages of one connection.
#[derive(Debug)]
pub(crate) struct Inflater {
    /// The window of the peer, if messages refer to earlier ones.
    context: Option<u8>,
    stream: Option<Decompress>,
    final_blocks: usize,
}

impl Inflater {
    pub(crate) fn new(role: Role, params: &DeflateParams) -> Self {
        let (no_context_takeover, window_bits) = match role {
            Role::Server => (params.client_no_context_takeover, params.client_max_window_bits),
            Role::Client => (params.server_no_context_takeover, params.server_max_window_bits),
        };
        // zlib has no window of 256 bytes, but a larger window inflates the same messages.
        let context = (!no_context_takeover).then(|| window_bits.clamp(9, 15));
        Self { context, stream: None, final_blocks: 0 }
    }

    /// Frees the memory. No message is inflated any more.
    pub(crate) fn release(&mut self) {
        self.stream = None;
    }

    /// Returns the memory of the stream, which always has the largest window.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.stream.is_some() { streams::INFLATING_BYTES } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn has_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Inflates `input` and appends the result. Fails if `output` would exceed the limit.
    pub(crate) fn inflate(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        let context = self.context;
        let stream = self.stream.get_or_insert_with(|| match context {
            Some(bits) => Decompress::new_with_window_bits(false, bits),
            None => streams::take_inflating(),
        });
        let mut input = input;
        loop {
            grow(output, bytes_max)?;
            let (read, written) = (stream.total_in(), output.len());
            let status = stream.decompress_vec(input, output, FlushDecompress::None);
            if output.len() > bytes_max {
                return Err(ProtocolError::MessageTooLong);
            }
            let status = status.map_err(|_| ProtocolError::DeflateInvalid)?;
            let read =
                usize::try_from(stream.total_in().saturating_sub(read)).unwrap_or(usize::MAX);
            input = input.get(read..).unwrap_or_default();
            if status == Status::StreamEnd {
                self.final_blocks = self.final_blocks.saturating_add(1);
                if self.final_blocks > FINAL_BLOCKS_MAX {
                    return Err(ProtocolError::DeflateInvalid);
                }
                stream.reset(false);
            }
            let is_full = output.len() == output.capacity();
            if input.is_empty() && !is_full {
                return Ok(());
            }
            let is_stuck = read == 0 && output.len() == written && !is_full;
            if is_stuck && status != Status::StreamEnd {
                return Err(ProtocolError::DeflateInvalid);
            }
        }
    }

    /// Ends a message.
    pub(crate) fn finish(
        &mut self,
        output: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        self.inflate(&TAIL, output, bytes_max)?;
        self.final_blocks = 0;
        if self.context.is_none() {
            if let Some(stream) = self.stream.take() {
                streams::keep_inflating(stream);
            }
        }
        Ok(())
    }
}

/// Makes room for the next step. The buffer may have one byte more than the limit, to distinguish a
/// message of exactly the limit from a longer one.
fn grow(output: &mut Vec<u8>, bytes_max: usize) -> Result<(), ProtocolError> {
    if output.len() < output.capacity() {
        return Ok(());
    }
    let left = bytes_max.saturating_add(1).saturating_sub(output.len());
    if left == 0 {
        return Err(ProtocolError::MessageTooLong);
    }
    output.reserve_exact(output.len().max(STEP_BYTES).min(left));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::deflater::Deflater;
    use super::super::params::DeflateOptions;
    use super::*;

    fn params(no_context_takeover: bool) -> DeflateParams {
        DeflateParams {
            server_no_context_takeover: no_context_takeover,
            client_no_context_takeover: no_context_takeover,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
        }
    }

    /// Returns a compressed message of so many bytes.
    fn message(length: usize) -> Vec<u8> {
        let options = DeflateOptions { level: u32::MAX, bytes_min: 0 };
        let mut deflater = Deflater::new(Role::Client, &params(true), options);
        let mut message = Vec::new();
        if let Some(deflater) = &mut deflater {
            deflater.deflate(&vec![7; length], |bytes, is_compressed| {
                assert!(is_compressed && bytes.len() < length / 2);
                message.extend_from_slice(bytes);
            });
        }
        message
    }

    #[test]
    fn the_limit_is_for_the_content_and_not_for_the_room() {
        for room in [0, 10_000] {
            for (bytes_max, expected) in
                [(3000, Ok(())), (2999, Err(ProtocolError::MessageTooLong))]
            {
                let mut output = Vec::with_capacity(room);
                let mut inflater = Inflater::new(Role::Server, &params(true));
                let result = inflater
                    .inflate(&message(3000), &mut output, bytes_max)
                    .and_then(|()| inflater.finish(&mut output, bytes_max));
                assert_eq!(result, expected, "{room} {bytes_max}");
                assert!(room > 0 || output.capacity() <= bytes_max + 1, "no more is taken");
            }
        }
    }

    #[test]
    fn only_a_context_keeps_the_stream_after_a_message() {
        for no_context_takeover in [false, true] {
            let mut inflater = Inflater::new(Role::Server, &params(no_context_takeover));
            let mut output = Vec::new();
            assert_eq!(inflater.inflate(&message(300), &mut output, 300), Ok(()));
            assert!(inflater.stream.is_some());
            assert_eq!(inflater.finish(&mut output, 300), Ok(()));
            assert_eq!(output, [7; 300]);
            assert_eq!(inflater.stream.is_none(), no_context_takeover);
            inflater.release();
            assert!(inflater.stream.is_none());
        }
    }
}
