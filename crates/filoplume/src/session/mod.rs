//! Sessions: what an app remembers of a browser from request to request.
//!
//! [`Sessions`](crate::middleware::Sessions) is the middleware, [`Session`] what handlers have of
//! it, [`Flash`] a use of it. Where sessions are kept is a [`SessionStore`], or the browser.

mod flash;
mod form_secret;
mod generations;
mod keeper;
mod memory;
mod record;
#[cfg(feature = "redis")]
mod redis;
mod segments;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

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
pub(crate) use keeper::{Keeper, Outcome, Place, random_token};
pub use memory::MemoryStore;
pub(crate) use record::Lifetime;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::SessionStore;

use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::Extract;
use crate::core::options::RouteOptions;
use keeper::Live;

/// The name under which a session keeps what proves that a form is its own. It ends with
/// [`Session::renew`].
pub(crate) const CSRF_SECRET: &str = "filoplume.csrf";

/// The name under which a session keeps who logged in, and in which generation.
pub(crate) const SUBJECT: &str = "filoplume.subject";

/// What an app remembers of a browser: values by name. See
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
/// What is changed is saved when the handler has returned, errors included, and not after a panic.
/// Clones are the same session. An app whose handler takes a session without the middleware does
/// not start.
///
/// Two requests of one session at once: each has its own copy, and what they change is put together
/// name by name; for the same name the last one counts. What one of them destroyed or renewed, the
/// other does not bring back.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    keeper: Arc<Keeper>,
    presented: Presented,
    state: Mutex<State>,
}

/// The values of the cookies that came.
pub(crate) struct Presented {
    pub(crate) session: Option<String>,
    pub(crate) form: Option<String>,
}

/// What the browser is told when the response is made.
pub(crate) struct Saved {
    pub(crate) session: Outcome,
    pub(crate) form: FormCookie,
}

enum State {
    /// Nobody has asked: the store was not.
    Unread,
    Live(Box<Live>),
    /// The response is made.
    Saved,
}

impl Session {
    /// Returns the session of a request. For middleware; handlers take it as a parameter.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn must_be_logged_in(request: Request, next: Next) -> Result<Response> {
    ///     match Session::of(&request)?.get::<u64>("user")? {
    ///         Some(_) => Ok(next.run(request)),
    ///         None => Redirect::to("/login").into_response(),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no [`Sessions`](crate::middleware::Sessions) further out, or the store fails.
    pub fn of(request: &Request) -> Result<Self> {
        let session = request.extensions().get::<Self>().cloned().ok_or_else(|| {
            Error::internal(
                "there is no session here: `Sessions` has to stand further out, which is earlier \
                 in the code",
            )
        })?;
        drop(session.live()?);
        Ok(session)
    }

    pub(crate) fn new(keeper: Arc<Keeper>, presented: Presented) -> Self {
        Self { inner: Arc::new(Inner { keeper, presented, state: Mutex::new(State::Unread) }) }
    }

    /// Returns the value of this name.
    ///
    /// # Errors
    ///
    /// If it is none of this type: the program kept another one under the name. A `500`.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let live = self.live()?;
        let Some(value) = live.record.values.get(name) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|error| {
            Error::internal(format!(
                "`{name}` in the session is no {}: {error}",
                std::any::type_name::<T>()
            ))
        })
    }

    /// Keeps a value under a name.
    ///
    /// # Errors
    ///
    /// If it is nothing that JSON can say.
    pub fn insert(&self, name: impl Into<String>, value: impl Serialize) -> Result<()> {
        let (name, value) = (name.into(), serde_json::to_value(value)?);
        self.live()?.change(name, Some(value));
        Ok(())
    }

    /// Forgets the value of a name.
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
    /// If the response was made already.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.live()?.change(name.to_owned(), None);
        Ok(())
    }

    /// Returns the value of a name, and forgets it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// /// Goes on to where somebody was before they had to log in.
    /// fn logged_in(session: Session) -> Result<Redirect> {
    ///     session.renew()?;
    ///     let target: Option<String> = session.take("target")?;
    ///     Ok(Redirect::to(target.unwrap_or("/".to_owned())))
    /// }
    /// # let app = App::new().get("/", logged_in).with(middleware::Sessions::in_cookie(filoplume::Key::generate()));
    /// # app.test().get("/").send().assert_header("location", "/");
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

    /// Forgets all values; the session goes on.
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
    /// If the response was made already.
    pub fn clear(&self) -> Result<()> {
        self.live()?.clear();
        Ok(())
    }

    /// Returns whether nothing is kept.
    ///
    /// # Errors
    ///
    /// If the response was made already.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.live()?.record.values.is_empty())
    }

    /// Gives the session a new id, and ends the one before. **Call it when somebody logs in**, and
    /// whenever what they may do grows: somebody else may have given the browser the id that it had
    /// before (session fixation).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn login(session: Session) -> Result<Redirect> {
    ///     // .. once the password is checked:
    ///     session.renew()?;
    ///     session.insert("user", 17)?;
    ///     Ok(Redirect::to("/"))
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If the response was made already.
    pub fn renew(&self) -> Result<()> {
        self.live()?.renew();
        Ok(())
    }

    /// Notes that somebody logged in, and [renews](Self::renew) the session. `subject` names them
    /// for good, such as by the key of their row in the database.
    ///
    /// If the app has [`Sessions::generations`](crate::middleware::Sessions::generations), the
    /// login ends as soon as the subject has a higher generation than it has now: in this session,
    /// wherever it is kept, and in all copies of its cookie. [`clear`](Self::clear) and
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
    /// If the response was made already, or the generation of the subject cannot be told.
    pub fn log_in(&self, subject: impl Into<String>) -> Result<()> {
        let subject = subject.into();
        // Before the session is locked: the app may ask a database.
        let generation = self.inner.keeper.generation(&subject)?;
        let mut live = self.live()?;
        live.renew();
        live.change(SUBJECT.to_owned(), Some(serde_json::to_value((subject, generation))?));
        Ok(())
    }

    /// Returns who [logged in](Self::log_in), unless that was revoked.
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
    /// If the response was made already.
    pub fn subject(&self) -> Result<Option<String>> {
        Ok(self.get::<(String, u64)>(SUBJECT)?.map(|(subject, _)| subject))
    }

    /// Ends the session, for good, and lets the browser forget it: for logging out. What is kept
    /// afterwards begins a new one.
    ///
    /// A session that is kept in the browser ends there only: who has a copy of the cookie can go
    /// on with it until it is too old, or until the app revokes it by [`Generations`].
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
    /// If the response was made already.
    pub fn destroy(&self) -> Result<()> {
        self.live()?.destroy();
        Ok(())
    }

    /// The session as it is now, read from where it is kept if that was not done yet.
    fn live(&self) -> Result<MappedMutexGuard<'_, Live>> {
        let inner = &*self.inner;
        let mut state = inner.state.lock();
        if matches!(*state, State::Unread) {
            let Presented { session, form } = &inner.presented;
            let live =
                inner.keeper.load_with_form_secret(session.as_deref(), form.as_deref(), now())?;
            *state = State::Live(Box::new(live));
        }
        MutexGuard::try_map(state, |state| match state {
            State::Live(live) => Some(&mut **live),
            State::Unread | State::Saved => None,
        })
        .map_err(|_| {
            Error::internal(
                "the session was saved already: it is used until the handler has returned",
            )
        })
    }

    /// Saves what was changed. `None` if nobody used the session.
    pub(crate) fn save(&self) -> Result<Option<Saved>> {
        let keeper = &self.inner.keeper;
        let state = std::mem::replace(&mut *self.inner.state.lock(), State::Saved);
        match state {
            State::Live(mut live) => {
                let form = keeper.settle_form_secret(&mut live);
                Ok(Some(Saved { session: keeper.save(*live, now())?, form }))
            }
            State::Unread | State::Saved => Ok(None),
        }
    }

    /// Returns the secret that forms are checked with, if there is one.
    pub(crate) fn csrf_secret(&self) -> Result<Option<String>> {
        Ok(self.live()?.csrf_secret().map(str::to_owned))
    }

    /// Returns the secret for forms, made if there is none.
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
    // What it keeps is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session(..)")
    }
}

/// The session. Refused with a `500` if the store fails.
impl Extract for Session {
    type Rejection = Error;

    fn extract(request: &mut Request, _: &Context<'_>) -> Result<Self> {
        Self::of(request)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it uses a session, and there are none: add `.with(Sessions::new(store, key))` to the \
             app, before what uses them",
        );
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
