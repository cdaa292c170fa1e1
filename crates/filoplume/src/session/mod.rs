//! Sessions: what an app remembers about a browser between requests.
//!
//! [`Sessions`](crate::middleware::Sessions) is the middleware. Handlers take a [`Session`];
//! [`Flash`] is built on it. Sessions are kept in a [`SessionStore`] or in the browser.

mod flash;
mod form_secret;
mod generations;
mod manager;
mod memory;
mod mismatch;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod remembered;
mod segments;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
#[cfg(test)]
mod store_tests;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use filoplume_runtime::Request;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use flash::{Flash, FlashMessage};
pub(crate) use form_secret::FormCookie;
pub use generations::{Generations, MemoryGenerations};
pub(crate) use manager::{CookieAction, SessionManager, Storage, random_token};
pub use memory::MemoryStore;
pub(crate) use record::Lifetime;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::{SessionOwner, SessionStore};

use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::FromRequest;
use crate::core::names::type_name_of;
use crate::core::options::RouteOptions;
use manager::LoadedSession;

/// The name of the CSRF secret in a session. [`Session::renew`] removes it.
pub(crate) const CSRF_SECRET: &str = "filoplume.csrf";

/// The name under which a session keeps its subject and generation.
pub(crate) const SUBJECT: &str = "filoplume.subject";

/// What an app remembers about a browser: named values. See
/// [`Sessions`](crate::middleware::Sessions).
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use filoplume::session::MemoryStore;
///
/// let app = App::new()
///     .get("/", |session: Session| -> Result<String> {
///         let visits = session.get::<u64>("visits")?.unwrap_or(0) + 1;
///         session.insert("visits", visits)?;
///         Ok(format!("visit {visits}"))
///     })
///     .with(Sessions::new(MemoryStore::new(), Key::generate()));
/// app.test().get("/").send().assert_text("visit 1");
/// ```
///
/// Changes are saved when the handler has returned, even if it returns an error, but not after a
/// panic. Clones share the session. If a handler takes a session without the middleware, the app
/// does not start.
///
/// Concurrent requests of a session have separate copies. Their changes are merged by name; if both
/// change the same name, the last one wins. If one request destroys or renews the session, the
/// other one does not restore it, unless the session is [kept in the
/// cookie](crate::middleware::Sessions::in_cookie): the other one then sends its copy.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    manager: Arc<SessionManager>,
    presented: Presented,
    state: Mutex<State>,
}

/// The values of the cookies in the request.
pub(crate) struct Presented {
    pub(crate) session: Option<String>,
    pub(crate) form: Option<String>,
    /// Whether browsers send the cookies over HTTPS only.
    pub(crate) is_secure: bool,
}

/// The cookies to set or remove when the response is made.
pub(crate) struct CookieUpdates {
    pub(crate) session: CookieAction,
    pub(crate) form: FormCookie,
}

enum State {
    /// Not loaded from the store, because no code has used it.
    Unread,
    Loaded(Box<LoadedSession>),
    /// The response has been made.
    Saved,
}

impl Session {
    /// Returns the session of a request. For middleware; handlers take it as a parameter.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn must_be_logged_in(request: Request, next: Next) -> Result<Response> {
    ///     match Session::of(&request)?.subject()? {
    ///         Some(_) => Ok(next.run(request)),
    ///         None => Redirect::to("/login").into_response(),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the [`Sessions`](crate::middleware::Sessions) middleware is missing, or the store fails.
    pub fn of(request: &Request) -> Result<Self> {
        let session = request.extensions().get::<Self>().cloned().ok_or_else(|| {
            Error::internal(
                "there is no session here: `Sessions` must be added as outer middleware, which is \
                 earlier in the code. An extractor of your own that uses the session calls \
                 `Session::configure(options)` in its `configure`: then an app without `Sessions` \
                 does not start",
            )
        })?;
        drop(session.live()?);
        Ok(session)
    }

    pub(crate) fn new(manager: Arc<SessionManager>, presented: Presented) -> Self {
        Self { inner: Arc::new(Inner { manager, presented, state: Mutex::new(State::Unread) }) }
    }

    /// Returns the value with this name.
    ///
    /// # Errors
    ///
    /// If the value does not have this type. The response is then a `500`, because the program
    /// stored it.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let live = self.live()?;
        let Some(value) = live.record.values.get(name) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|error| {
            Error::internal(format!(
                "`{name}` in the session cannot be read as `{}`: {error}",
                type_name_of::<T>()
            ))
        })
    }

    /// Sets a value by name.
    ///
    /// # Errors
    ///
    /// If JSON cannot express the value.
    pub fn insert(&self, name: impl Into<String>, value: impl Serialize) -> Result<()> {
        let (name, value) = (name.into(), serde_json::to_value(value)?);
        self.live()?.change(name, Some(value));
        Ok(())
    }

    /// Removes the value with this name.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .post("/draft", |session: Session, text: String| session.insert("draft", text))
    ///     .delete("/draft", |session: Session| session.remove("draft"))
    ///     .get("/draft", |session: Session| session.get::<String>("draft"))
    ///     .with(middleware::Sessions::in_cookie(Key::generate()));
    /// let client = app.test();
    /// client.post("/draft").body("Dear Ada").send();
    /// client.get("/draft").send().assert_text("Dear Ada");
    /// client.delete("/draft").send();
    /// client.get("/draft").send().assert_status(404);
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.live()?.change(name.to_owned(), None);
        Ok(())
    }

    /// Removes and returns the value with this name.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// /// Redirects to the page that the user wanted before the login.
    /// fn login(session: Session) -> Result<Redirect> {
    ///     // .. once the password is checked:
    ///     session.log_in("ada")?;
    ///     let target: Option<String> = session.take("target")?;
    ///     // The target came from a request, so it may lead to another site.
    ///     Ok(Redirect::local(&target.unwrap_or_default(), "/"))
    /// }
    /// # let sessions = middleware::Sessions::in_cookie(filoplume::Key::generate());
    /// # let app = App::new().post("/", login).with(sessions);
    /// # app.test().post("/").send().assert_header("location", "/");
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn take<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let value = self.get(name)?;
        self.remove(name)?;
        Ok(value)
    }

    /// Removes all values; the session continues.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |session: Session| -> Result<String> {
    ///         session.insert("basket", ["tea", "milk"])?;
    ///         session.clear()?;
    ///         Ok(format!("empty: {}", session.is_empty()?))
    ///     })
    ///     .with(middleware::Sessions::in_cookie(Key::generate()));
    /// app.test().get("/").send().assert_text("empty: true");
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn clear(&self) -> Result<()> {
        self.live()?.clear();
        Ok(())
    }

    /// Returns whether the session has no values.
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.live()?.record.values.is_empty())
    }

    /// Gives the session a new ID, and makes the old one invalid. **Call this when a user gets more
    /// rights**: an attacker may have planted the old ID in the browser (session fixation). For a
    /// login, call [`log_in`](Self::log_in), which does this as well. With
    /// [`Sessions::in_cookie`](crate::middleware::Sessions::in_cookie), copies of the old cookie
    /// stay valid until they expire.
    ///
    /// If another request has ended or renewed the session since this one loaded it, the session is
    /// not restored, and the changes of this request are lost.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn become_admin(session: Session) -> Result<Redirect> {
    ///     // .. once the second factor is checked:
    ///     session.renew()?;
    ///     session.insert("is_admin", true)?;
    ///     Ok(Redirect::to("/admin"))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn renew(&self) -> Result<()> {
        self.live()?.renew();
        Ok(())
    }

    /// Records that a user logged in, and [renews](Self::renew) the session. `subject` identifies
    /// the user permanently, such as by the key of their row in the database. A full store evicts
    /// such sessions last.
    ///
    /// The values of a visitor stay, such as a shopping basket, and so do those of the same user.
    /// If another user was logged in, all values are removed first, also those that this request
    /// has inserted before. If another request has ended the session meanwhile, the login begins a
    /// new one that has only what this request sets.
    ///
    /// If the app has [`Sessions::generations`](crate::middleware::Sessions::generations), the
    /// login ends when the generation of the subject is raised. This applies to this session,
    /// wherever it is kept, and to all copies of its cookie. [`clear`](Self::clear) and
    /// [`destroy`](Self::destroy) end the login of this session only.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     // Once the password is checked:
    ///     .post("/login", |session: Session| session.log_in("ada"))
    ///     .get("/", |session: Session| session.subject())
    ///     .with(middleware::Sessions::in_cookie(Key::generate()));
    /// let client = app.test();
    /// client.post("/login").send();
    /// client.get("/").send().assert_text("ada");
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made, or the generation of the subject cannot be read.
    #[doc(alias("login_user"))]
    pub fn log_in(&self, subject: impl fmt::Display) -> Result<()> {
        let subject = subject.to_string();
        // Read before the session is locked, because the app may query a database.
        let generation = self.inner.manager.generation(&subject)?;
        self.live()?.log_in(&subject, generation, now());
        Ok(())
    }

    /// Returns the subject that [logged in](Self::log_in), unless the login was revoked.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |session: Session| -> Result<String> {
    ///         session.subject()?.ok_or_else(|| Error::unauthorized("log in first"))
    ///     })
    ///     .with(middleware::Sessions::in_cookie(Key::generate()));
    /// app.test().get("/").send().assert_status(401);
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    #[doc(alias("current_user"))]
    pub fn subject(&self) -> Result<Option<String>> {
        Ok(self.get::<(String, u64)>(SUBJECT)?.map(|(subject, _)| subject))
    }

    /// Ends the session permanently and removes its cookie, for logging out. Values that are
    /// inserted afterwards begin a new session.
    ///
    /// A session in a cookie ends only in this browser. A copy of the cookie works until it
    /// expires, or until the app revokes it with [`Generations`].
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .post("/login", |session: Session| session.insert("user", 17))
    ///     .post("/logout", |session: Session| session.destroy())
    ///     .get("/", |session: Session| {
    ///         session.get::<u64>("user").map(|user| format!("{user:?}"))
    ///     })
    ///     .with(middleware::Sessions::in_cookie(Key::generate()));
    /// let client = app.test();
    /// client.post("/login").send();
    /// client.get("/").send().assert_text("Some(17)");
    /// client.post("/logout").send();
    /// client.get("/").send().assert_text("None");
    /// ```
    ///
    /// # Errors
    ///
    /// If the response has already been made.
    pub fn destroy(&self) -> Result<()> {
        self.live()?.destroy();
        Ok(())
    }

    /// Locks and returns the session. The first call loads it.
    fn live(&self) -> Result<MappedMutexGuard<'_, LoadedSession>> {
        let inner = &*self.inner;
        let mut state = inner.state.lock();
        if matches!(*state, State::Unread) {
            let Presented { session, form, .. } = &inner.presented;
            let live =
                inner.manager.load_with_form_secret(session.as_deref(), form.as_deref(), now())?;
            *state = State::Loaded(Box::new(live));
        }
        MutexGuard::try_map(state, |state| match state {
            State::Loaded(live) => Some(&mut **live),
            State::Unread | State::Saved => None,
        })
        .map_err(|_| {
            Error::internal(
                "the session was already saved: it can be used until the handler has returned",
            )
        })
    }

    /// Saves the changes. Returns `None` if no code has used the session.
    pub(crate) fn save(&self) -> Result<Option<CookieUpdates>> {
        let manager = &self.inner.manager;
        let state = std::mem::replace(&mut *self.inner.state.lock(), State::Saved);
        match state {
            State::Loaded(mut live) => {
                let form = manager.settle_form_secret(&mut live);
                Ok(Some(CookieUpdates { session: manager.save(*live, now())?, form }))
            }
            State::Unread | State::Saved => Ok(None),
        }
    }

    /// Returns the cookies that came with the request.
    pub(crate) fn presented(&self) -> &Presented {
        &self.inner.presented
    }

    /// Returns the CSRF secret, if there is one.
    pub(crate) fn csrf_secret(&self) -> Result<Option<String>> {
        Ok(self.live()?.csrf_secret().map(str::to_owned))
    }

    /// Returns the CSRF secret, and creates one if there is none.
    pub(crate) fn csrf_secret_or_new(&self) -> Result<String> {
        let mut live = self.live()?;
        if let Some(secret) = live.csrf_secret() {
            return Ok(secret.to_owned());
        }
        let secret = random_token()?;
        live.set_csrf_secret(secret.clone());
        Ok(secret)
    }
}

impl fmt::Debug for Session {
    // Values are not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session(..)")
    }
}

/// The session. If the store fails, its error is the response, such as a `503` if it is away.
impl FromRequest for Session {
    type Rejection = Error;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self> {
        Self::of(request)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it uses a session, and there are none: add `.with(Sessions::new(store, key))` to the \
             app, before what uses them",
        );
    }
}

/// Returns seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
