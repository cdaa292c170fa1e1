//! The frames that wait for a peer: those of its own, and those that it shares with others.

use bytes::Bytes;

/// A shorter frame is copied if others wait before it: its entry in the list of shared frames would
/// use much of the memory that sharing saves, or more.
const SHARED_BYTES_MIN: usize = 128;

/// Frames in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// A shared frame that is sent before all others. It is not in the list, because most
    /// broadcasts find nothing that waits for a member, and then allocate no memory for it.
    first: Option<Bytes>,
    /// The frames of this socket alone, and copies of short shared ones.
    own: Vec<u8>,
    /// Shared frames that are sent between the bytes of `own`.
    shared: Vec<Shared>,
    /// The bytes of all shared frames.
    shared_bytes: usize,
}

/// A frame that several sockets share.
#[derive(Debug)]
struct Shared {
    /// How many bytes of `own` are sent before it.
    after: usize,
    frame: Bytes,
}

impl Frames {
    /// Returns the number of bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.own.len() + self.shared_bytes
    }

    /// Returns the memory of what waits for the peer. A shared frame counts in full for each socket
    /// that holds it, and its entry in the list counts as well.
    pub(super) fn cost(&self) -> usize {
        self.bytes() + self.shared.len() * size_of::<Shared>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Returns the buffer to which frames of this socket alone are appended.
    pub(super) fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends a frame that other sockets send too.
    pub(super) fn share(&mut self, frame: &Bytes) {
        if self.is_empty() {
            self.shared_bytes = frame.len();
            self.first = Some(frame.clone());
        } else if frame.len() < SHARED_BYTES_MIN {
            self.own.extend_from_slice(frame);
        } else {
            self.shared_bytes += frame.len();
            self.shared.push(Shared { after: self.own.len(), frame: frame.clone() });
        }
    }

    /// Passes the frames to the closure in their order, piece by piece.
    pub(super) fn for_each(&self, mut send: impl FnMut(&[u8])) {
        if let Some(frame) = &self.first {
            send(frame);
        }
        let mut own = self.own.as_slice();
        let mut sent = 0;
        for Shared { after, frame } in &self.shared {
            if let Some((before, rest)) = own.split_at_checked(after.saturating_sub(sent)) {
                if !before.is_empty() {
                    send(before);
                }
                (own, sent) = (rest, *after);
            }
            send(frame);
        }
        if !own.is_empty() {
            send(own);
        }
    }

    /// Takes frames from the front until they have `bytes_max` bytes. They may have more, because
    /// no shared frame is divided.
    pub(super) fn take(&mut self, bytes_max: usize) -> Self {
        if self.bytes() <= bytes_max {
            return std::mem::take(self);
        }
        let first = self.first.take();
        let mut bytes = first.as_ref().map_or(0, Bytes::len);
        let mut shared_bytes = bytes;
        let (mut own_taken, mut shared_taken) = (0, 0);
        for Shared { after, frame } in &self.shared {
            let left = bytes_max.saturating_sub(bytes);
            let before = after - own_taken;
            if before >= left {
                break;
            }
            own_taken = *after;
            shared_taken += 1;
            shared_bytes += frame.len();
            bytes += before + frame.len();
        }
        let own_end = self.shared.get(shared_taken).map_or(self.own.len(), |next| next.after);
        own_taken = own_end.min(own_taken + bytes_max.saturating_sub(bytes));

        let own = self.own.split_off(own_taken);
        let shared: Vec<Shared> = self.shared.drain(..shared_taken).collect();
        self.shared.iter_mut().for_each(|next| next.after -= own_taken);
        self.shared_bytes -= shared_bytes;
        Self { first, own: std::mem::replace(&mut self.own, own), shared, shared_bytes }
    }

    /// Uses a buffer from the closure for the frames of this socket alone, if there is none yet.
    pub(super) fn provide(&mut self, buffer: impl FnOnce() -> Vec<u8>) {
        if self.own.capacity() == 0 {
            self.own = buffer();
        }
    }

    /// Drops the frames. Returns the emptied buffer of `own`, if it has allocated one.
    pub(super) fn into_buffer(self) -> Option<Vec<u8>> {
        let mut own = self.own;
        own.clear();
        Some(own).filter(|own| own.capacity() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: &[u8] = b"short";

    fn pieces(frames: &Frames) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        frames.for_each(|piece| pieces.push(piece.to_vec()));
        pieces
    }

    #[test]
    fn frames_are_sent_in_the_order_in_which_they_came() {
        let long = Bytes::from(vec![b'x'; SHARED_BYTES_MIN]);
        let short = Bytes::from_static(SHORT);
        // Every sequence of six steps.
        for sequence in 0..3_u32.pow(6) {
            let (mut frames, mut expected) = (Frames::default(), Vec::new());
            for step in 0..6 {
                match sequence / 3_u32.pow(step) % 3 {
                    0 => {
                        frames.own().push(b'a');
                        expected.push(b'a');
                    }
                    1 => {
                        frames.share(&short);
                        expected.extend_from_slice(&short);
                    }
                    _ => {
                        frames.share(&long);
                        expected.extend_from_slice(&long);
                    }
                }
                assert_eq!(pieces(&frames).concat(), expected, "sequence {sequence}");
                assert_eq!(frames.bytes(), expected.len());
            }
            assert!(pieces(&frames).iter().all(|piece| !piece.is_empty()));
        }
    }

    #[test]
    fn what_is_taken_in_parts_is_the_same_in_the_same_order() {
        let frame = Bytes::from((0..).take(SHARED_BYTES_MIN).collect::<Vec<u8>>());
        for sequence in 0..2_u32.pow(8) {
            for bytes_max in [1, 100, 127, 128, 129, 300] {
                let mut frames = Frames::default();
                for step in 0..8 {
                    if sequence >> step & 1 == 0 {
                        frames.own().extend_from_slice(&[step; 70]);
                    } else {
                        frames.share(&frame);
                    }
                }
                let expected = pieces(&frames).concat();
                let mut taken = Vec::new();
                while !frames.is_empty() {
                    let before = frames.bytes();
                    let part = frames.take(bytes_max);
                    assert_eq!(part.bytes() + frames.bytes(), before);
                    assert!(part.bytes() >= bytes_max || frames.is_empty());
                    assert!(part.bytes() < bytes_max + SHARED_BYTES_MIN);
                    taken.extend(pieces(&part).concat());
                }
                assert_eq!(taken, expected, "sequence {sequence}, {bytes_max} bytes");
            }
        }
    }

    #[test]
    fn long_frames_and_the_first_one_are_shared_and_others_are_copied() {
        let long = Bytes::from(vec![b'x'; SHARED_BYTES_MIN]);
        let short = Bytes::from_static(SHORT);
        for (before, frame, is_shared) in [
            (None, &long, true),
            (None, &short, true),
            (Some(&short), &long, true),
            (Some(&long), &long, true),
            (Some(&long), &short, false),
        ] {
            let mut frames = Frames::default();
            if let Some(before) = before {
                frames.share(before);
            }
            frames.share(frame);
            let mut last = std::ptr::null();
            frames.for_each(|piece| last = piece.as_ptr());
            assert_eq!(last == frame.as_ptr(), is_shared, "{before:?} {frame:?}");
        }
    }

    #[test]
    fn the_place_of_a_shared_frame_is_counted_and_is_less_than_the_frame() {
        let shortest = Bytes::from(vec![b'x'; SHARED_BYTES_MIN]);
        let mut frames = Frames::default();
        for _ in 0..1000 {
            frames.share(&shortest);
        }
        assert_eq!(frames.bytes(), 1000 * SHARED_BYTES_MIN);
        assert_eq!(frames.cost(), frames.bytes() + 999 * size_of::<Shared>());
        assert!(frames.cost() < frames.bytes() * 3 / 2);
    }

    #[test]
    fn a_buffer_is_used_and_given_back_empty_and_none_is_made_for_shared_frames() {
        let mut frames = Frames::default();
        frames.share(&Bytes::from_static(SHORT));
        assert_eq!(frames.into_buffer(), None);
        let mut frames = Frames::default();
        frames.provide(|| Vec::with_capacity(100));
        frames.provide(|| unreachable!("it has one"));
        frames.own().extend_from_slice(SHORT);
        let buffer = frames.into_buffer();
        assert_eq!(buffer.map(|buffer| (buffer.len(), buffer.capacity())), Some((0, 100)));
    }
}
