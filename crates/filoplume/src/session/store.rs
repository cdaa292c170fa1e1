//! The interface of session stores.

use std::sync::Arc;
use std::time::Duration;

use crate::core::error::Result;

/// Who a session belongs to. A store with a bound keeps those of users longest: a stranger can
/// begin and present any number of sessions, but cannot log in.
///
/// ```
/// use filoplume::session::{MemoryStore, SessionOwner, SessionStore};
/// use std::time::Duration;
///
/// let store = MemoryStore::new();
/// store.insert_for(SessionOwner::User, "an ID", b"a record", Duration::from_secs(60))?;
/// assert_eq!(store.load("an ID")?.as_deref(), Some(&b"a record"[..]));
/// # Ok::<(), filoplume::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionOwner {
    /// Anybody: no credentials are needed for such a session.
    Visitor,
    /// A user who has [logged in](super::Session::log_in), or whose session is
    /// [remembered](super::Session::remember).
    User,
}

/// A store for sessions. [`MemoryStore`](super::MemoryStore), `SqliteStore` and `RedisStore` are
/// included. Implement this trait to use another database.
///
/// An ID is a keyed hash of the value in the browser, so the contents of a store cannot be used as
/// cookies. Records are opaque. Methods may block. An error ends the request and is logged.
/// The response is a `500`, or a `503` if the error is
/// [`Error::unavailable`](crate::Error::unavailable).
///
/// [`Sessions`](crate::middleware::Sessions) calls the methods with more parameters,
/// [`load_presented`](Self::load_presented), [`insert_for`](Self::insert_for) and
/// [`replace_for`](Self::replace_for). They are for stores that keep some sessions longer than
/// others, and otherwise do the same as `load`, `insert` and `replace`.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::session::SessionStore;
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// /// Keeps sessions forever, as a minimal example.
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
    /// Returns the record of a session, unless the session has ended. It is called only for IDs
    /// that a client presented with a valid signature. A store with a bound should keep such
    /// sessions longer than those that were never presented again.
    ///
    /// # Errors
    ///
    /// If the store is not available.
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>>;

    /// Stores a new record for `keep_for`.
    ///
    /// # Errors
    ///
    /// If the record cannot be stored.
    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()>;

    /// Replaces `old` by `new` for `keep_for`. Returns `false`, and changes nothing, if the record
    /// is no longer `old` or has been removed. This must be atomic: concurrent requests rely on it,
    /// and it keeps destroyed sessions from being restored.
    ///
    /// # Errors
    ///
    /// If the record cannot be stored.
    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool>;

    /// Removes a session. It is not an error if it does not exist.
    ///
    /// # Errors
    ///
    /// If the store is not available. The session may then still exist.
    fn remove(&self, id: &str) -> Result<()>;

    /// Like [`load`](Self::load). `keep_for` is the longest time for which a session is kept after
    /// a use. A store that keeps new sessions for a shorter time keeps this one for `keep_for` from
    /// now on.
    ///
    /// # Errors
    ///
    /// Like those of [`load`](Self::load).
    fn load_presented(&self, id: &str, keep_for: Duration) -> Result<Option<Vec<u8>>> {
        let _ = keep_for;
        self.load(id)
    }

    /// Like [`insert`](Self::insert), and says who the session belongs to.
    ///
    /// # Errors
    ///
    /// Like those of [`insert`](Self::insert).
    fn insert_for(
        &self,
        owner: SessionOwner,
        id: &str,
        record: &[u8],
        keep_for: Duration,
    ) -> Result<()> {
        let _ = owner;
        self.insert(id, record, keep_for)
    }

    /// Like [`replace`](Self::replace), and says who the session belongs to from now on.
    ///
    /// # Errors
    ///
    /// Like those of [`replace`](Self::replace).
    fn replace_for(
        &self,
        owner: SessionOwner,
        id: &str,
        old: &[u8],
        new: &[u8],
        keep_for: Duration,
    ) -> Result<bool> {
        let _ = owner;
        self.replace(id, old, new, keep_for)
    }
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

    fn load_presented(&self, id: &str, keep_for: Duration) -> Result<Option<Vec<u8>>> {
        (**self).load_presented(id, keep_for)
    }

    fn insert_for(
        &self,
        owner: SessionOwner,
        id: &str,
        record: &[u8],
        keep_for: Duration,
    ) -> Result<()> {
        (**self).insert_for(owner, id, record, keep_for)
    }

    fn replace_for(
        &self,
        owner: SessionOwner,
        id: &str,
        old: &[u8],
        new: &[u8],
        keep_for: Duration,
    ) -> Result<bool> {
        (**self).replace_for(owner, id, old, new, keep_for)
    }
}
