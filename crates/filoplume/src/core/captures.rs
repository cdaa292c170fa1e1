//! The positions of the captures in a path.

/// The position of a capture in the paths that match a pattern. A segment has at most one capture,
/// so lengths of literal text are enough to find the values without matching again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) name: String,
    /// The number of bytes of literal text since the previous capture, or since the start of the
    /// path.
    pub(crate) skip: usize,
    /// The number of bytes of literal text after the capture in its segment.
    pub(crate) suffix: usize,
    pub(crate) is_rest: bool,
}

/// The captures of one path that matches their pattern. Values are located only when they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captures<'p> {
    captures: &'p [Capture],
    path: &'p str,
}

impl<'p> Captures<'p> {
    pub(crate) fn new(captures: &'p [Capture], path: &'p str) -> Self {
        Self { captures, path }
    }

    pub(crate) fn len(&self) -> usize {
        self.captures.len()
    }

    /// Returns names and values. The values are still percent-encoded.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'p str, &'p str)> + use<'p> {
        let mut rest = self.path;
        self.captures.iter().map_while(move |capture| {
            let from_here = rest.get(capture.skip..)?;
            let segment_end = if capture.is_rest {
                None
            } else {
                from_here.bytes().position(|byte| byte == b'/')
            };
            let end = segment_end.unwrap_or(from_here.len()).saturating_sub(capture.suffix);
            let (value, after) = from_here.split_at_checked(end)?;
            rest = after;
            Some((&*capture.name, value))
        })
    }
}
