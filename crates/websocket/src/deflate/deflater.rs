//! Compresses messages.

use flate2::{Compress, FlushCompress};

use super::params::{DeflateOptions, DeflateParams};
use super::{TAIL, streams};
use crate::role::Role;

/// Room for the end of a block. With less room, zlib would write the end twice.
const ROOM_BYTES: usize = 64;

/// Compresses the messages of one connection.
#[derive(Debug)]
pub(crate) struct Deflater {
    keeps_context: bool,
    window_bits: u8,
    options: DeflateOptions,
    stream: Option<Compress>,
}

impl Deflater {
    /// Returns `None` if the window is too small for zlib. Messages are then sent uncompressed,
    /// which every peer accepts.
    pub(crate) fn new(role: Role, params: &DeflateParams, options: DeflateOptions) -> Option<Self> {
        let (no_context_takeover, window_bits) = match role {
            Role::Server => (params.server_no_context_takeover, params.server_max_window_bits),
            Role::Client => (params.client_no_context_takeover, params.client_max_window_bits),
        };
        if !(9..=15).contains(&window_bits) {
            return None;
        }
        let keeps_context = !no_context_takeover;
        Some(Self { keeps_context, window_bits, options, stream: None })
    }

    /// Calls the closure with the compressed message and `true`, or with the message as it is and
    /// `false` if compressing is not worthwhile.
    pub(crate) fn deflate(&mut self, content: &[u8], send: impl FnOnce(&[u8], bool)) {
        if content.len() < self.options.bytes_min.max(1) {
            return send(content, false);
        }
        streams::with_scratch(|scratch| {
            if !self.compress(content, scratch) {
                // Cannot happen with a valid stream. The context is lost, so a new stream begins
                // without one. The peer may keep its context, to which no later message refers.
                self.stream = None;
                return send(content, false);
            }
            // With context takeover, later messages may refer to this one, so the peer has to
            // receive it compressed.
            let is_worthwhile = self.keeps_context || scratch.len() < content.len();
            if is_worthwhile { send(scratch, true) } else { send(content, false) }
        });
    }

    fn compress(&mut self, content: &[u8], output: &mut Vec<u8>) -> bool {
        let (bits, level) = (self.window_bits, self.options.level.min(9));
        let stream = self.stream.take();
        let mut stream = match (stream, self.keeps_context) {
            (Some(stream), _) => stream,
            (None, true) => streams::new_deflating(bits, level),
            (None, false) => streams::take_deflating(bits, level),
        };
        let is_complete = compress(&mut stream, content, output);
        if self.keeps_context {
            self.stream = Some(stream);
        } else {
            streams::keep_deflating(bits, level, stream);
        }
        is_complete
    }
}

/// Appends the compressed content without its tail. Returns `false` if that fails.
fn compress(stream: &mut Compress, content: &[u8], output: &mut Vec<u8>) -> bool {
    let mut input = content;
    output.reserve((content.len() / 2).saturating_add(ROOM_BYTES));
    loop {
        let read = stream.total_in();
        if stream.compress_vec(input, output, FlushCompress::Sync).is_err() {
            return false;
        }
        let read = usize::try_from(stream.total_in().saturating_sub(read)).unwrap_or(usize::MAX);
        input = input.get(read..).unwrap_or_default();
        if input.is_empty() && output.len() < output.capacity() {
            break;
        }
        output.reserve(output.len().max(ROOM_BYTES));
    }
    let Some(length) = output.strip_suffix(&TAIL).map(<[u8]>::len) else {
        return false;
    };
    output.truncate(length);
    true
}
