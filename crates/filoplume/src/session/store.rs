//! Where sessions are kept: what a store can do.

use std::sync::Arc;
use std::time::Duration;

use crate::core::error::Result;

/// A place for sessions. [`MemoryStore`](super::MemoryStore), `SqliteStore` and `RedisStore` are in
/// the box; others implement this for any database.
///
/// An id is a keyed hash of what the browser has: who reads a store cannot use what it finds.
/// Records are opaque. Methods may block. Their errors end the request with a `500`, and are
/// logged.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::session::SessionStore;
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// /// Keeps sessions for ever: a start.
/// #[derive(Default)]
/// struct Simple(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl SessionStore for Simple {
///     fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
///         Ok(self.0.lock().unwrap().get(id).cloned())
///     }
///
///     fn insert(&self, id: &str, record: &[u8], _keep_for: Duration) -> Result<()> {
///         self.0.lock().unwrap().insert(id.to_owned(), record.to_owned());
///         Ok(())
///     }
///
///     fn replace(
///         &self,
///         id: &str,
///         old: &[u8],
///         new: &[u8],
///         _keep_for: Duration,
///     ) -> Result<bool> {
///         let mut records = self.0.lock().unwrap();
///         match records.get_mut(id) {
///             Some(record) if record == old => *record = new.to_owned(),
///             _ => return Ok(false),
///         }
///         Ok(true)
///     }
///
///     fn remove(&self, id: &str) -> Result<()> {
///         self.0.lock().unwrap().remove(id);
///         Ok(())
///     }
/// }
/// ```
pub trait SessionStore: Send + Sync + 'static {
    /// Returns the record of a session, unless it is over. It is asked only for what a client has
    /// presented with a valid signature: a store with a bound keeps such sessions longer than those
    /// that never came back.
    ///
    /// # Errors
    ///
    /// If the store cannot be asked.
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>>;

    /// Keeps a new record, for so long.
    ///
    /// # Errors
    ///
    /// If the store cannot keep it.
    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()>;

    /// Keeps `new` in place of `old`, for so long. Returns `false`, and changes nothing, if the
    /// record is not `old` any more, or is gone. This is atomic: two requests of one session rely
    /// on it, and so does that what was destroyed stays so.
    ///
    /// # Errors
    ///
    /// If the store cannot keep it.
    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool>;

    /// Forgets a session. One that is not there is no error.
    ///
    /// # Errors
    ///
    /// If the store cannot be asked: the session may still be there.
    fn remove(&self, id: &str) -> Result<()>;
}

impl<S: SessionStore + ?Sized> SessionStore for Arc<S> {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        (**self).load(id)
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        (**self).insert(id, record, keep_for)
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        (**self).replace(id, old, new, keep_for)
    }

    fn remove(&self, id: &str) -> Result<()> {
        (**self).remove(id)
    }
}
