//! Sessions that outlive the idle timeout and the browser: "stay logged in".
//!
//! The lifetime is a value of the session, so every store keeps it, and it is merged, renewed and
//! removed like the others. A version of this crate that does not know it falls back to the idle
//! timeout.

use std::time::Duration;

use serde_json::{Map, Value};

use super::manager::LoadedSession;
use super::record::Record;
use super::{SUBJECT, Session, now};
use crate::core::error::{Error, Result};

/// The name under which a session keeps its lifetime in seconds.
const REMEMBERED: &str = "filoplume.remembered";

impl Session {
    /// Keeps this session for `lifetime` from now on, even if it is not used or the browser is
    /// closed. This is for a box such as "stay logged in". The lifetime replaces the
    /// [idle timeout](crate::middleware::Sessions::idle_timeout) and
    /// [`until_browser_closes`](crate::middleware::Sessions::until_browser_closes) for this session
    /// only. Call it again to extend the session.
    ///
    /// The lifetime belongs to the login. [`renew`](Self::renew) keeps it, and so does another
    /// [`log_in`](Self::log_in) of the same user. It ends with [`clear`](Self::clear) and
    /// [`destroy`](Self::destroy), and if another user logs in.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::Sessions;
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Login {
    ///     name: String,
    ///     #[serde(default)]
    ///     stay: bool,
    /// }
    ///
    /// fn login(session: Session, Form(login): Form<Login>) -> Result<()> {
    ///     // .. once the password is checked:
    ///     session.log_in(login.name)?;
    ///     if login.stay {
    ///         session.remember(Duration::from_secs(30 * 24 * 60 * 60))?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let sessions = Sessions::in_cookie(Key::generate()).until_browser_closes();
    /// let client = App::new().post("/login", login).with(sessions).test();
    /// let short = client.post("/login").form(&[("name", "ada")]).send();
    /// assert!(!short.header("set-cookie").unwrap().contains("Max-Age"));
    /// let long = client.post("/login").form(&[("name", "ada"), ("stay", "on")]).send();
    /// assert!(long.header("set-cookie").unwrap().contains("Max-Age=2592000"));
    /// ```
    ///
    /// # Errors
    ///
    /// If the lifetime is shorter than a second, or longer than the [absolute
    /// timeout](crate::middleware::Sessions::absolute_timeout), which is 30 days by default; or if
    /// the response has already been made.
    #[doc(alias("set_expiry", "permanent", "remember_me"))]
    pub fn remember(&self, lifetime: Duration) -> Result<()> {
        let longest = self.inner.manager.lifetime.absolute;
        if lifetime > longest {
            return Err(Error::internal(format!(
                "the session cannot be remembered for {lifetime:?}: sessions end after \
                 {longest:?}, the `absolute_timeout` of `Sessions`"
            )));
        }
        if lifetime.as_secs() == 0 {
            return Err(Error::internal(format!(
                "the session cannot be remembered for {lifetime:?}: that would end it at once"
            )));
        }
        self.live()?.remember(lifetime, now());
        Ok(())
    }
}

impl LoadedSession {
    pub(super) fn remember(&mut self, lifetime: Duration, now: u64) {
        let seconds = Value::from(lifetime.as_secs());
        // The lifetime counts from here, even if the visitor has had the session for long.
        self.record.created = now;
        self.record.values.insert(REMEMBERED.to_owned(), seconds.clone());
        // Recorded even if the number is the same as before, because the session is extended.
        self.changes.insert(REMEMBERED.to_owned(), Some(seconds));
    }

    /// Lets the lifetime begin anew, and removes the one that an earlier request set, unless the
    /// same subject logs in. Removes everything of another subject.
    pub(super) fn begin_unless(&mut self, subject: &str, now: u64) {
        let earlier = self.record.values.get(SUBJECT);
        if earlier.and_then(|login| login.get(0)).and_then(Value::as_str) == Some(subject) {
            return;
        }
        if earlier.is_some() {
            let lifetime = self.changes.remove(REMEMBERED).flatten();
            self.destroy();
            self.record.touched = now;
            if let Some(lifetime) = lifetime {
                self.change(REMEMBERED.to_owned(), Some(lifetime));
            }
        }
        // A visitor may have had the session for weeks before the login.
        self.record.created = now;
        if !self.sets_lifetime() {
            self.change(REMEMBERED.to_owned(), None);
        }
    }

    pub(super) fn log_in(&mut self, subject: &str, generation: u64, now: u64) {
        self.begin_unless(subject, now);
        self.renew();
        let login = Value::from(vec![Value::from(subject), Value::from(generation)]);
        self.record.values.insert(SUBJECT.to_owned(), login.clone());
        // Recorded even if it is the same as before: it counts if another request has ended the
        // session since.
        self.changes.insert(SUBJECT.to_owned(), Some(login));
    }

    /// Returns whether this request has logged somebody in.
    pub(super) fn logs_in(&self) -> bool {
        matches!(self.changes.get(SUBJECT), Some(Some(_)))
    }

    /// Returns a session that has only what this request has set.
    pub(super) fn own_changes(&self) -> Record {
        let mut record = Record { values: Map::new(), ..self.record.clone() };
        record.apply(&self.changes);
        record
    }

    /// Returns whether this request sets or removes the lifetime. The cookie changes then, too.
    pub(super) fn sets_lifetime(&self) -> bool {
        self.changes.contains_key(REMEMBERED)
    }
}

impl Record {
    /// Returns the lifetime from the creation on, if the session is remembered.
    pub(super) fn remembered_for(&self) -> Option<Duration> {
        self.values.get(REMEMBERED).and_then(Value::as_u64).map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use crate::middleware::Sessions;
    use crate::{App, Key};

    use super::*;

    #[test]
    fn a_session_is_remembered_for_a_second_up_to_the_absolute_timeout() {
        const LONGEST: Duration = Duration::from_secs(60);
        let handler = |session: Session| -> Result<String> {
            let times = [999, 1000, 60_000, 60_001].map(Duration::from_millis);
            Ok(format!("{:?}", times.map(|time| session.remember(time).is_ok())))
        };
        let sessions = Sessions::in_cookie(Key::generate()).absolute_timeout(LONGEST);
        let client = App::new().get("/", handler).with(sessions).test();
        client.get("/").send().assert_text("[false, true, true, false]");
    }
}
