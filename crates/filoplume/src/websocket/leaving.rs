//! Closed sockets leave their rooms.
//!
//! A socket may be in a thousand rooms, and to leave one takes up to a microsecond. A loop on which
//! hundreds of such sockets close at once would have nothing else to do for most of a second. So a
//! socket that is in many rooms leaves them on a thread of their own, which starts with the first
//! such socket.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{OnceLock, Weak};
use std::thread;

use filoplume_runtime::tcp::LastingMemory;

use super::room::RoomInner;

/// So many rooms are left at once. Most sockets are in fewer.
const AT_ONCE_MAX: usize = 32;

/// If so many sockets wait for the thread, further ones leave their rooms at once. So the memory of
/// what waits is bounded. Only large servers have had more sockets than this.
const WAITING_MAX: usize = 4 * 1024;

/// A socket that has closed, and the rooms that it was in.
pub(super) struct Leaving {
    pub(super) id: u64,
    pub(super) rooms: Vec<Weak<RoomInner>>,
    /// What the rooms take until they are left.
    pub(super) memory: Option<LastingMemory>,
}

impl Leaving {
    /// Leaves the rooms, at once or soon.
    pub(super) fn start(self) {
        if self.rooms.len() <= AT_ONCE_MAX {
            return self.leave();
        }
        let left_here = match thread_for_many() {
            Some(thread) => match thread.try_send(self) {
                Ok(()) => return,
                Err(TrySendError::Full(leaving) | TrySendError::Disconnected(leaving)) => leaving,
            },
            None => self,
        };
        left_here.leave();
    }

    fn leave(mut self) {
        for room in self.rooms.iter().filter_map(Weak::upgrade) {
            room.remove_closed(self.id, self.memory.as_mut());
        }
        drop(self.memory);
    }
}

/// Returns the thread, or `None` if the system has none left.
fn thread_for_many() -> Option<&'static SyncSender<Leaving>> {
    static THREAD: OnceLock<Option<SyncSender<Leaving>>> = OnceLock::new();
    let start = || {
        let (thread, leaving): (_, Receiver<Leaving>) = sync_channel(WAITING_MAX);
        let run = move || leaving.iter().for_each(Leaving::leave);
        let spawned = thread::Builder::new().name("filoplume-rooms".to_owned()).spawn(run);
        spawned.ok().map(|_| thread)
    };
    THREAD.get_or_init(start).as_ref()
}
