//! Sessions, and the cookie that identifies them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cookie::{Cookie, SameSite};
use filoplume_runtime::{Request, Response};

use crate::client::is_over_tls;
use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next, is_panic};
use crate::core::options::RouteOptions;
use crate::core::panics::PanicFlag;
use crate::extract::{Cookies, add_set_cookie, is_cookie_name};
use crate::key::Key;
use crate::semantics::vary::add_vary;
use crate::session::{
    CookieAction, CookieUpdates, FormCookie, Generations, Lifetime, Presented, Session,
    SessionManager, SessionStore, Storage,
};

/// When an unused session ends. Many users return the next day.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// When a session ends in any case, so that a stolen one does not work forever.
const ABSOLUTE_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The default name of the cookie, if it cannot have a prefix such as `__Host-`.
const NAME: &str = "session";

/// Keeps sessions of browsers. Handlers take a [`Session`].
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use filoplume::session::MemoryStore;
///
/// let app = App::new()
///     .post("/login/{name}", |Path(name): Path<String>, session: Session| -> Result<Redirect> {
///         session.log_in(name)?;                       // a new ID, against session fixation
///         Ok(Redirect::to("/"))
///     })
///     .get("/", |session: Session| -> Result<String> {
///         let name = session.subject()?.ok_or(Error::unauthorized("who are you?"))?;
///         Ok(format!("hello {name}"))
///     })
///     .post("/logout", |session: Session| session.destroy())
///     .with(Sessions::new(MemoryStore::new(), Key::generate()));
/// # let client = app.test();
/// # let login = client.post("/login/ada").send();
/// # let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
/// # client.get("/").header("cookie", &cookie).send().assert_text("hello ada");
/// # client.post("/logout").header("cookie", &cookie).send().assert_status(200);
/// # client.get("/").header("cookie", &cookie).send().assert_status(401);
/// ```
///
/// With a [store](SessionStore) the browser only has a random, signed ID. With
/// [`in_cookie`](Self::in_cookie) it has the session itself, encrypted. A session begins when a
/// value is inserted; taking a [`CsrfToken`](super::CsrfToken) for a form does not begin one. A
/// session is written when it was changed, and also to record that it is in use: at most once per
/// sixteenth of the idle timeout. If a store fails, the log has a line, and the response is a
/// `503` if the store is only away for the moment, such as a Redis server that does not answer or
/// a locked SQLite database. Otherwise it is a `500`.
///
/// The cookie is `HttpOnly`, `SameSite=Lax`, and `Secure` unless the app runs in [development
/// mode](crate::App::development). Browsers accept a `Secure` cookie over plain HTTP from
/// `localhost` only. Its name is `__Host-session`, so that other hosts of the domain cannot set it,
/// or `session` if it cannot have that prefix. If a session was read, the response has
/// `Vary: Cookie`, and `Cache-Control: private, no-cache` unless the handler set another one.
#[derive(Clone)]
pub struct Sessions {
    manager: Arc<SessionManager>,
    name: Option<String>,
    same_site: SameSite,
    path: String,
    domain: Option<String>,
    is_secure: Option<bool>,
    is_lasting: bool,
}

impl Sessions {
    /// Returns sessions that are kept in a store. If the key changes, existing sessions are lost.
    pub fn new(store: impl SessionStore, key: Key) -> Self {
        Self::with_storage(Storage::Store(Arc::new(store)), key)
    }

    /// Returns sessions that are kept in the cookie, encrypted and authenticated. Nothing is stored
    /// on the server, and all instances with the key can read them. A session can hold about 2,800
    /// bytes of JSON; more is a `500` that says so.
    ///
    /// A cookie is valid until it expires. So logging out ends the session in this browser only,
    /// and a copy of the cookie still works, unless the app uses
    /// [`generations`](Self::generations). If two requests change the session at once, the last one
    /// wins. So a slow request that changes the session can send the cookie of before a logout
    /// again.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::Sessions;
    ///
    /// let sessions = Sessions::in_cookie(Key::generate());
    /// ```
    pub fn in_cookie(key: Key) -> Self {
        Self::with_storage(Storage::Cookie, key)
    }

    fn with_storage(storage: Storage, key: Key) -> Self {
        let lifetime = Lifetime { idle: IDLE_TIMEOUT, absolute: ABSOLUTE_TIMEOUT };
        Self {
            manager: Arc::new(SessionManager {
                name: NAME.to_owned(),
                storage,
                key,
                old_keys: Vec::new(),
                lifetime,
                generations: None,
                mismatches: Arc::default(),
            }),
            name: None,
            same_site: SameSite::Lax,
            path: "/".to_owned(),
            domain: None,
            is_secure: None,
            is_lasting: true,
        }
    }

    /// Also accepts sessions that were begun with another key, so that a key can be changed without
    /// ending them. Remove the old key when the [absolute timeout](Self::absolute_timeout) has
    /// passed.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::Sessions;
    ///
    /// let (new, old) =
    ///     ("the secret of this year, 32 bytes", "the secret of last year, 32 bytes");
    /// let sessions =
    ///     Sessions::in_cookie(Key::from_secret(new)?).old_key(Key::from_secret(old)?);
    /// # Ok::<(), filoplume::Error>(())
    /// ```
    #[must_use]
    pub fn old_key(mut self, key: Key) -> Self {
        Arc::make_mut(&mut self.manager).old_keys.push(key);
        self
    }

    /// Lets the server end sessions, wherever they are kept. A session is invalid if its subject
    /// [logged in](Session::log_in) under a lower generation than the current one. This is how "log
    /// out everywhere" and a changed password also end copies of a cookie. See [`Generations`] for
    /// generations in a database, and [`MemoryGenerations`](crate::session::MemoryGenerations) for
    /// generations in memory.
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
    ///     .with(Sessions::in_cookie(Key::generate()).generations(Arc::clone(&generations)))
    ///     .test();
    /// client.post("/login").send();
    /// client.get("/").send().assert_text("ada");
    /// generations.advance("ada"); // log out everywhere
    /// client.get("/").send().assert_status(404);
    /// ```
    #[must_use]
    pub fn generations(mut self, generations: impl Generations) -> Self {
        Arc::make_mut(&mut self.manager).generations = Some(Arc::new(generations));
        self
    }

    /// Sets when an unused session ends, unless it is [remembered](Session::remember). It may end
    /// up to a sixteenth of this time earlier. With zero, the app does not start. Default: 24
    /// hours.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.manager).lifetime.idle = timeout;
        self
    }

    /// Sets when a session ends in any case, counted from its beginning, or from the
    /// [login](Session::log_in) of its user. With zero, the app does not start. Default: 30 days.
    #[must_use]
    pub fn absolute_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.manager).lifetime.absolute = timeout;
        self
    }

    /// Makes browsers forget the session when they are closed, unless it is
    /// [remembered](Session::remember). Default: they keep it as long as it lasts.
    #[must_use]
    pub fn until_browser_closes(mut self) -> Self {
        self.is_lasting = false;
        self
    }

    /// Sets the name of the cookie. Sessions with different names are separate, even with the same
    /// key and store. An app with an invalid name, or with two `Sessions` of one name around a
    /// route, does not start.
    #[must_use]
    pub fn cookie_name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        Arc::make_mut(&mut self.manager).name.clone_from(&name);
        self.name = Some(name);
        self
    }

    /// Sets the path for which the cookie is sent. It must begin with a slash; otherwise the app
    /// does not start. Default: `/`.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sends the cookie to all hosts of a domain, such as `example.org`. An app with an invalid
    /// domain does not start.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets when browsers send the cookie with requests from other sites. Default: `Lax`, for links
    /// only.
    #[must_use]
    pub fn same_site(mut self, same_site: SameSite) -> Self {
        self.same_site = same_site;
        self
    }

    /// Sets whether the cookie is sent over TLS only. Default: yes, unless the app runs in
    /// development mode.
    #[must_use]
    pub fn secure(mut self, is_secure: bool) -> Self {
        self.is_secure = Some(is_secure);
        self
    }

    /// Returns the mistakes in the settings.
    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if let Some(name) = self.name.as_ref().filter(|name| !is_cookie_name(name)) {
            let name = name.escape_debug();
            mistakes.push(format!(
                "Sessions: `{name}` is not a name of a cookie: it can have letters, digits, `-` \
                 and `_`"
            ));
        }
        if let Some(domain) = self.domain.as_ref().filter(|domain| !is_cookie_domain(domain)) {
            mistakes.push(format!(
                "Sessions: `{}` is not a domain: write `example.org`, without scheme, port \
                 and path",
                domain.escape_debug()
            ));
        }
        let has_end = |character: char| character == ';' || character.is_control();
        if !self.path.starts_with('/') || self.path.contains(has_end) {
            mistakes.push(format!(
                "Sessions: `{}` is not the path of a cookie: it begins with `/` and has no `;`",
                self.path.escape_debug()
            ));
        }
        let Lifetime { idle, absolute } = self.manager.lifetime;
        for (timeout, name) in [(idle, "idle_timeout"), (absolute, "absolute_timeout")] {
            if timeout.is_zero() {
                mistakes
                    .push(format!("Sessions: an `{name}` of zero would end each session at once"));
            }
        }
        mistakes
    }

    fn cookie_name_if(&self, is_secure: bool) -> &str {
        let can_be_host = is_secure && self.domain.is_none() && self.path == "/";
        self.name.as_deref().unwrap_or(if can_be_host { "__Host-session" } else { NAME })
    }

    /// Returns the name of the cookie that [`Csrf`](super::Csrf) uses for browsers without a
    /// session.
    fn form_cookie_name_if(&self, is_secure: bool) -> String {
        format!("{}-csrf", self.cookie_name_if(is_secure))
    }

    fn cookie(&self, name: String, value: String) -> Cookie<'static> {
        let mut cookie = Cookie::new(name, value);
        cookie.set_same_site(self.same_site);
        cookie.set_path(self.path.clone());
        if let Some(domain) = &self.domain {
            cookie.set_domain(domain.clone());
        }
        cookie
    }

    fn removal_cookie(&self, name: String) -> Cookie<'static> {
        let mut cookie = self.cookie(name, String::new());
        cookie.make_removal();
        cookie
    }

    fn session_cookie(&self, outcome: CookieAction, is_secure: bool) -> Option<Cookie<'static>> {
        let name = self.cookie_name_if(is_secure).to_owned();
        match outcome {
            CookieAction::Unchanged => None,
            CookieAction::Set { value, keep_for, is_remembered } => {
                let mut cookie = self.cookie(name, value);
                if self.is_lasting || is_remembered {
                    // Zero would make the browser delete it.
                    let seconds = i64::try_from(keep_for.as_secs().max(1)).unwrap_or(i64::MAX);
                    cookie.set_max_age(cookie::time::Duration::seconds(seconds));
                }
                Some(cookie)
            }
            CookieAction::Remove => Some(self.removal_cookie(name)),
        }
    }

    /// The cookie lasts until the browser is closed, because no form is open after that.
    fn form_cookie(&self, form: FormCookie, is_secure: bool) -> Option<Cookie<'static>> {
        let name = self.form_cookie_name_if(is_secure);
        match form {
            FormCookie::Unchanged => None,
            FormCookie::Set(value) => Some(self.cookie(name, value)),
            FormCookie::Remove => Some(self.removal_cookie(name)),
        }
    }

    /// Sets or removes the cookies after the session was saved.
    fn set_cookies(
        &self,
        updates: CookieUpdates,
        is_secure: bool,
        response: &mut Response,
    ) -> Result<()> {
        let session = self.session_cookie(updates.session, is_secure);
        let form = self.form_cookie(updates.form, is_secure);
        mark_private(response, session.is_some() || form.is_some())?;
        for cookie in session.into_iter().chain(form) {
            add_set_cookie(response, cookie, is_secure)?;
        }
        Ok(())
    }
}

impl Middleware for Sessions {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let is_secure = self
            .is_secure
            .unwrap_or_else(|| !next.context().is_development() || is_over_tls(&request));
        let cookies = Cookies::of(&request);
        let presented = Presented {
            session: cookies.get(self.cookie_name_if(is_secure)),
            form: cookies.get(&self.form_cookie_name_if(is_secure)),
            is_secure,
        };
        let session = Session::new(Arc::clone(&self.manager), presented);
        request.extensions_mut().insert(session.clone());
        let flag = PanicFlag::add_to(&mut request);
        let mut response = next.run(request);
        if flag.is_set() || is_panic(&response) {
            return Ok(response);
        }
        if let Some(updates) = session.save()? {
            self.set_cookies(updates, is_secure, &mut response)?;
        }
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<Session>();
        for mistake in self.mistakes() {
            options.mistake(mistake);
        }
        // The name outside of development mode is checked, so that mistakes do not depend on the
        // mode.
        let name = self.cookie_name_if(self.is_secure.unwrap_or(true));
        if !options.claim_session_cookie(name) {
            options.mistake(format!(
                "two `Sessions` use the cookie `{}`: remove one, or give it another `cookie_name`",
                name.escape_debug()
            ));
        }
    }
}

/// Returns whether browsers can use this as the domain of a cookie. They ignore a leading dot.
fn is_cookie_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    domain.strip_prefix('.').unwrap_or(domain).split('.').all(is_label)
}

/// Marks a response as specific to one browser. A response that sets a session's cookie must not be
/// kept by shared caches, whatever the handler set.
fn mark_private(response: &mut Response, gives_session: bool) -> Result<()> {
    let has = |control: &str, directive: &str| {
        control.split(',').any(|value| value.trim().eq_ignore_ascii_case(directive))
    };
    let is_shared = match response.headers().get_str("cache-control") {
        Some(control) => gives_session && !has(control, "private") && !has(control, "no-store"),
        None => true,
    };
    add_vary(response.headers_mut(), "Cookie");
    if is_shared {
        response.set_header("cache-control", "private, no-cache")?;
    }
    Ok(())
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("lifetime", &self.manager.lifetime).finish_non_exhaustive()
    }
}
