//! Generations of logins: they let the server revoke sessions, wherever those are kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::core::error::Result;

/// Maximum number of subjects for which [`MemoryGenerations`] keeps a generation: some 30 MB.
const SUBJECTS_MAX: usize = 250_000;

/// The current generation of each subject, for
/// [`Sessions::generations`](crate::middleware::Sessions::generations).
///
/// A subject is a user, under the name that was passed to
/// [`Session::log_in`](super::Session::log_in). A login records the current generation of the
/// subject. A session with a lower generation is invalid. A generation never decreases. Apps
/// usually keep it in a column of their table of users, and implement this trait with a closure:
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// // In place of: SELECT generation FROM users WHERE id = ?
/// let users = Arc::new(Mutex::new(HashMap::from([("ada".to_owned(), 1)])));
/// let table = Arc::clone(&users);
/// let generation = move |user: &str| -> Result<u64> {
///     let users = table.lock().unwrap();
///     Ok(users.get(user).copied().unwrap_or(u64::MAX)) // a deleted user has no valid logins
/// };
///
/// let client = App::new()
///     .post("/login", |session: Session| session.log_in("ada"))
///     .get("/", |session: Session| session.subject())
///     .with(Sessions::in_cookie(Key::generate()).generations(generation))
///     .test();
/// client.post("/login").send();
/// client.get("/").send().assert_text("ada");
/// // UPDATE users SET generation = generation + 1 WHERE id = ?
/// users.lock().unwrap().insert("ada".to_owned(), 2);
/// client.get("/").send().assert_status(404);
/// ```
///
/// It is called once for each request that uses a session with a login, and may block. For a
/// deleted user, return `u64::MAX`: the browser is then that of a stranger. An error would fail all
/// its requests that use the session, those to the login too.
pub trait Generations: Send + Sync + 'static {
    /// Returns the current generation of a subject.
    ///
    /// # Errors
    ///
    /// If the generation cannot be read, for example because the database is away. The request
    /// fails with this error, because the login may be revoked.
    fn current(&self, subject: &str) -> Result<u64>;
}

impl<F: Fn(&str) -> Result<u64> + Send + Sync + 'static> Generations for F {
    fn current(&self, subject: &str) -> Result<u64> {
        self(subject)
    }
}

impl<G: Generations + ?Sized> Generations for Arc<G> {
    fn current(&self, subject: &str) -> Result<u64> {
        (**self).current(subject)
    }
}

/// Generations in the memory of one process.
///
/// All logins end when the process ends. The process after it does not know what was revoked, and
/// revoked logins must not become valid again. The memory is bounded: when the 250,001st subject is
/// advanced, the logins of all subjects end.
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use filoplume::session::MemoryGenerations;
/// use std::sync::Arc;
///
/// let generations = Arc::new(MemoryGenerations::new());
/// let client = App::new()
///     .post("/login", |session: Session| session.log_in("ada"))
///     .get("/", |session: Session| session.subject())
///     .post(
///         "/password",
///         |session: Session, State(logins): State<Arc<MemoryGenerations>>| {
///             // .. once the new password is stored: earlier logins end,
///             // and this browser is logged in again.
///             logins.advance("ada");
///             session.log_in("ada")
///         },
///     )
///     .state(Arc::clone(&generations))
///     .with(Sessions::in_cookie(Key::generate()).generations(generations))
///     .test();
/// client.post("/login").send();
/// let elsewhere = client.cookie("__Host-session").unwrap();
/// client.post("/password").send();
/// client.get("/").send().assert_text("ada");
/// client.set_cookie("__Host-session", &elsewhere);
/// client.get("/").send().assert_status(404);
/// ```
pub struct MemoryGenerations {
    inner: Mutex<Inner>,
}

struct Inner {
    /// The generation of every subject that is not in the map.
    of_others: u64,
    by_subject: HashMap<String, u64>,
    newest: u64,
    subjects_max: usize,
}

impl MemoryGenerations {
    /// Returns generations that are higher than those of all earlier processes.
    pub fn new() -> Self {
        Self::with_subjects_max(SUBJECTS_MAX)
    }

    fn with_subjects_max(subjects_max: usize) -> Self {
        let now = microseconds();
        let inner = Inner { of_others: now, by_subject: HashMap::new(), newest: now, subjects_max };
        Self { inner: Mutex::new(inner) }
    }

    /// Ends all logins of a subject, and returns its new generation. For "log out everywhere", and
    /// for a changed password.
    pub fn advance(&self, subject: impl Into<String>) -> u64 {
        self.inner.lock().advance(subject.into())
    }
}

impl Inner {
    fn advance(&mut self, subject: String) -> u64 {
        self.newest = microseconds().max(self.newest.saturating_add(1));
        self.by_subject.insert(subject, self.newest);
        if self.by_subject.len() > self.subjects_max {
            // Dropping a single subject would make its revoked logins valid again.
            self.by_subject.clear();
            self.of_others = self.newest;
        }
        self.newest
    }
}

/// Returns microseconds since 1970. So a process starts with a higher number than its predecessor
/// reached.
fn microseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Default for MemoryGenerations {
    fn default() -> Self {
        Self::new()
    }
}

impl Generations for MemoryGenerations {
    fn current(&self, subject: &str) -> Result<u64> {
        let inner = self.inner.lock();
        Ok(inner.by_subject.get(subject).copied().unwrap_or(inner.of_others))
    }
}

impl fmt::Debug for MemoryGenerations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subjects = self.inner.lock().by_subject.len();
        f.debug_struct("MemoryGenerations").field("subjects", &subjects).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(generations: &MemoryGenerations, subject: &str) -> u64 {
        generations.current(subject).expect("memory does not fail")
    }

    #[test]
    fn generations_only_grow_and_each_subject_has_its_own() {
        let generations = MemoryGenerations::new();
        let (ada, bob) = (current(&generations, "ada"), current(&generations, "bob"));
        let first = generations.advance("ada");
        let second = generations.advance("ada");
        assert!(ada < first && first < second);
        assert_eq!((current(&generations, "ada"), current(&generations, "bob")), (second, bob));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_login_valid_again() {
        let generations = MemoryGenerations::new();
        // As if the clock had been ahead by a day.
        let ahead = microseconds() + 24 * 3600 * 1_000_000;
        generations.inner.lock().newest = ahead;
        assert_eq!([(); 2].map(|()| generations.advance("ada")), [ahead + 1, ahead + 2]);
    }

    #[test]
    fn a_later_process_starts_with_a_higher_generation() {
        let before = MemoryGenerations::new();
        let last = before.advance("ada");
        // This holds however coarse the clock is.
        while microseconds() <= last {
            std::hint::spin_loop();
        }
        assert!(current(&MemoryGenerations::new(), "ada") > last);
    }

    #[test]
    fn the_bound_on_subjects_makes_no_login_valid_again() {
        let generations = MemoryGenerations::with_subjects_max(3);
        let advanced: Vec<u64> =
            ["a", "b", "c", "d"].map(|subject| generations.advance(subject)).into();
        assert_eq!(generations.inner.lock().by_subject.len(), 0);
        for subject in ["a", "b", "c", "d", "e"] {
            assert_eq!(current(&generations, subject), advanced[3], "{subject}");
        }
        assert!(generations.advance("a") > advanced[3]);
    }
}
