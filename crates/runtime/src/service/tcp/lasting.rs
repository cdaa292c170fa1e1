//! Memory that a connection takes for as long as it is open.

use std::fmt;
use std::sync::Arc;

use crate::budget::account::{Account, LastingCharge};

/// What the program remembers for a connection for as long as it is open, such as an entry per
/// channel that its peer has subscribed to. It counts in the server's memory budget
/// ([`memory_max`](crate::ServerConfig::memory_max)) until this is dropped. Returned by
/// [`Io::lasting_memory`](super::Io::lasting_memory).
///
/// Such memory fills at most a quarter of the budget, because no deadline of the peer releases it.
/// It is counted, and never allocated, by this.
///
/// ```
/// use filoplume_runtime::tcp::{Io, LastingMemory, Protocol};
/// use std::collections::BTreeSet;
///
/// /// Remembers the words of its peer.
/// #[derive(Default)]
/// struct Words {
///     seen: BTreeSet<Vec<u8>>,
///     memory: Option<LastingMemory>,
/// }
///
/// impl Protocol for Words {
///     fn open(&mut self, io: &mut Io<'_>) {
///         self.memory = Some(io.lasting_memory());
///     }
///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
///         for word in bytes.split(|&byte| byte == b' ') {
///             let memory = self.memory.as_mut().expect("it is set when the connection opens");
///             if !memory.try_set(memory.bytes() + word.len() + 64) {
///                 io.close();
///                 break;
///             }
///             self.seen.insert(word.to_vec());
///         }
///         bytes.len()
///     }
/// }
/// ```
pub struct LastingMemory(LastingCharge);

impl LastingMemory {
    pub(super) fn of(account: &Arc<Account>) -> Self {
        Self(LastingCharge::of(account))
    }

    /// Changes the number of bytes. Returns whether there is memory for them; a smaller number is
    /// always accepted. If there is none, the number stays as it is.
    pub fn try_set(&mut self, bytes: usize) -> bool {
        self.0.try_set(bytes)
    }

    /// Returns the number of bytes that count at present.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl fmt::Debug for LastingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastingMemory").field("bytes", &self.bytes()).finish()
    }
}
