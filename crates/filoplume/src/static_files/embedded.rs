//! Files that are embedded in the program.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use rust_embed::RustEmbed;

use super::content::{Content, Found, Source, Stored};
use crate::core::error::Result;
use crate::semantics::conditional::{EntityTag, Validators};

/// Length of the hash in a tag. 128 bits do not collide by chance, and a deliberate collision takes
/// 2⁶⁴ tries.
const HASH_BYTES: usize = 16;

/// The files that a type embeds.
pub(super) struct Embedded<A>(PhantomData<fn() -> A>);

impl<A: RustEmbed> Embedded<A> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<A: RustEmbed + 'static> Source for Embedded<A> {
    fn find(&self, path: &str) -> Result<Found> {
        // Only files are embedded, so any other path may be a folder.
        let Some(file) = A::get(path) else { return Ok(Found::Folder) };
        let hash = file.metadata.sha256_hash();
        let text = hash.iter().take(HASH_BYTES).fold(String::new(), |mut text, byte| {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let mut validators = Validators::new().etag(EntityTag::strong(&text));
        let modified = file
            .metadata
            .last_modified()
            .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        if let Some(modified) = modified {
            validators = validators.last_modified(modified);
        }
        let bytes = match file.data {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        Ok(Found::File(Stored {
            length: bytes.len() as u64,
            content: Content::Memory(bytes),
            validators,
        }))
    }
}
