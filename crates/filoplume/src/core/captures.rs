//! Where the captures of a pattern lie in a path.

/// Where a capture lies in the paths that match a pattern. There is one in a segment, so this can
/// be said in lengths, and values are found without matching again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) name: String,
    /// Bytes of literal text since the capture before, or since the start of the path.
    pub(crate) skip: usize,
    /// Bytes of literal text behind it in its segment.
    pub(crate) suffix: usize,
    pub(crate) is_rest: bool,
}

/// The captures of one path that matches their pattern. Their values are found when they are read.
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

    /// Names and values, which are still percent-encoded.
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
