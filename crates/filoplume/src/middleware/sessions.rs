//! Sessions, and the cookie that stands for one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cookie::{Cookie, SameSite};
use filoplume_runtime::{Request, Response};

use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next, is_panic};
use crate::core::options::RouteOptions;
use crate::extract::{Cookies, add_set_cookie};
use crate::key::Key;
use crate::semantics::vary::add_vary;
use crate::session::{
    FormCookie, Generations, Keeper, Lifetime, Outcome, Place, Presented, Saved, Session,
    SessionStore,
};

/// When a session ends that nobody uses: people come back the next day.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// When a session ends in any case: a stolen one is of no use for ever.
const ABSOLUTE_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the cookie is called, unless the program says otherwise or it can have a name with a
/// promise.
const NAME: &str = "session";

/// Remembers browsers from request to request. Handlers take a [`Session`].
///
/// ```
/// use filoplume::Key;
/// use filoplume::middleware::Sessions;
/// use filoplume::prelude::*;
/// use filoplume::session::MemoryStore;
///
/// let app = App::new()
///     .post("/login/{name}", |Path(name): Path<String>, session: Session| -> Result<Redirect> {
///         session.renew()?;                            // a new id, against session fixation
///         session.insert("user", name)?;
///         Ok(Redirect::to("/"))
///     })
///     .get("/", |session: Session| -> Result<String> {
///         let user: Option<String> = session.get("user")?;
///         user.map(|name| format!("hello {name}")).ok_or(Error::unauthorized("who are you?"))
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
/// With a [store](SessionStore) the browser has a random, signed id only;
/// [`in_cookie`](Self::in_cookie) it has the session itself, encrypted. A session begins when
/// something is kept in it (a form with a [`CsrfToken`](super::CsrfToken) is nothing), and is
/// written when something was changed, or to note that it is in use: each sixteenth of the idle
/// time. A store that fails is a `500`, with a line in the log.
///
/// The cookie is `HttpOnly`, `SameSite=Lax`, and `Secure` unless the app runs in [development
/// mode](crate::App::development): browsers take it over plain HTTP from `localhost` only. Its name
/// is `__Host-session`, so that other hosts of the domain cannot set it, and `session` where it
/// cannot have that. Responses to which a session was read say `Vary: Cookie`, and
/// `Cache-Control: private, no-cache` unless they say something themselves.
#[derive(Clone)]
pub struct Sessions {
    keeper: Arc<Keeper>,
    name: Option<String>,
    same_site: SameSite,
    path: String,
    domain: Option<String>,
    is_secure: Option<bool>,
    is_lasting: bool,
}

impl Sessions {
    /// Returns sessions that are kept in a store. With another key no browser is known any more.
    pub fn new(store: impl SessionStore, key: Key) -> Self {
        Self::at(Place::Store(Arc::new(store)), key)
    }

    /// Returns sessions that are kept in the cookie, encrypted and authenticated: nothing is kept
    /// on the server, and all instances with the key can read them. They have room for some 2,800
    /// bytes of JSON; more is a `500` that says so.
    ///
    /// What the browser has is valid until it is too old: logging out ends it in this browser only,
    /// unless the app has [`generations`](Self::generations). Of two requests at once the last one
    /// counts.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::Sessions;
    ///
    /// let sessions = Sessions::in_cookie(Key::generate());
    /// ```
    pub fn in_cookie(key: Key) -> Self {
        Self::at(Place::Cookie, key)
    }

    fn at(place: Place, key: Key) -> Self {
        let lifetime = Lifetime { idle: IDLE_TIMEOUT, absolute: ABSOLUTE_TIMEOUT };
        Self {
            keeper: Arc::new(Keeper {
                name: NAME.to_owned(),
                place,
                key,
                old_keys: Vec::new(),
                lifetime,
                generations: None,
            }),
            name: None,
            same_site: SameSite::Lax,
            path: "/".to_owned(),
            domain: None,
            is_secure: None,
            is_lasting: true,
        }
    }

    /// Knows sessions too that were begun with another key, so that a key can be changed without
    /// ending them. It can be left out again when the [absolute timeout](Self::absolute_timeout)
    /// has passed.
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
        Arc::make_mut(&mut self.keeper).old_keys.push(key);
        self
    }

    /// Ends sessions from the server's side, wherever they are kept: those in which a subject
    /// [logged in](Session::log_in) under a lower generation than its current one are void. This is
    /// how "log out everywhere" and a changed password end the copies of a cookie too. See
    /// [`Generations`] for generations in a database, and
    /// [`MemoryGenerations`](crate::session::MemoryGenerations) for those in memory.
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
        Arc::make_mut(&mut self.keeper).generations = Some(Arc::new(generations));
        self
    }

    /// Sets when a session ends that is not used. It may end a sixteenth earlier. Default: 24
    /// hours.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.keeper).lifetime.idle = timeout;
        self
    }

    /// Sets when a session ends in any case. Default: 30 days.
    #[must_use]
    pub fn absolute_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.keeper).lifetime.absolute = timeout;
        self
    }

    /// Lets browsers forget the session when they are closed. Default: they keep it for as long as
    /// it lasts.
    #[must_use]
    pub fn until_browser_closes(mut self) -> Self {
        self.is_lasting = false;
        self
    }

    /// Sets the name of the cookie. Sessions with other names are others, also if they have the
    /// same key and the same store.
    #[must_use]
    pub fn cookie_name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        Arc::make_mut(&mut self.keeper).name.clone_from(&name);
        self.name = Some(name);
        self
    }

    /// Sets for which path of the host the cookie is sent. Default: `/`.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sends the cookie to all hosts of a domain too.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets when browsers send the cookie to requests that other sites cause. Default: `Lax`, for
    /// links only.
    #[must_use]
    pub fn same_site(mut self, same_site: SameSite) -> Self {
        self.same_site = same_site;
        self
    }

    /// Sets whether the cookie goes over TLS only. Default: yes, unless the app runs in development
    /// mode.
    #[must_use]
    pub fn secure(mut self, is_secure: bool) -> Self {
        self.is_secure = Some(is_secure);
        self
    }

    fn cookie_name_if(&self, is_secure: bool) -> &str {
        let can_be_host = is_secure && self.domain.is_none() && self.path == "/";
        self.name.as_deref().unwrap_or(if can_be_host { "__Host-session" } else { NAME })
    }

    /// The name of the cookie that a browser without a session has for [`Csrf`](super::Csrf).
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

    fn removal(&self, name: String) -> Cookie<'static> {
        let mut cookie = self.cookie(name, String::new());
        cookie.make_removal();
        cookie
    }

    fn session_cookie(&self, outcome: Outcome, is_secure: bool) -> Option<Cookie<'static>> {
        let name = self.cookie_name_if(is_secure).to_owned();
        match outcome {
            Outcome::Nothing => None,
            Outcome::Keep(value, keep_for) => {
                let mut cookie = self.cookie(name, value);
                if self.is_lasting {
                    // Zero would let the browser forget it.
                    let seconds = i64::try_from(keep_for.as_secs().max(1)).unwrap_or(i64::MAX);
                    cookie.set_max_age(cookie::time::Duration::seconds(seconds));
                }
                Some(cookie)
            }
            Outcome::Forget => Some(self.removal(name)),
        }
    }

    /// It lasts until the browser is closed: no page is open any longer then.
    fn form_cookie(&self, form: FormCookie, is_secure: bool) -> Option<Cookie<'static>> {
        let name = self.form_cookie_name_if(is_secure);
        match form {
            FormCookie::Unchanged => None,
            FormCookie::Keep(value) => Some(self.cookie(name, value)),
            FormCookie::Forget => Some(self.removal(name)),
        }
    }

    /// Tells the browser what became of the session.
    fn tell(&self, saved: Saved, is_secure: bool, response: &mut Response) -> Result<()> {
        let session = self.session_cookie(saved.session, is_secure);
        let form = self.form_cookie(saved.form, is_secure);
        mark_personal(response, session.is_some() || form.is_some())?;
        for cookie in session.into_iter().chain(form) {
            add_set_cookie(response, cookie, is_secure)?;
        }
        Ok(())
    }
}

impl Middleware for Sessions {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let is_secure = self.is_secure.unwrap_or(!next.context().is_development());
        let cookies = Cookies::of(&request);
        let presented = Presented {
            session: cookies.get(self.cookie_name_if(is_secure)),
            form: cookies.get(&self.form_cookie_name_if(is_secure)),
        };
        let session = Session::new(Arc::clone(&self.keeper), presented);
        request.extensions_mut().insert(session.clone());
        let mut response = next.run(request);
        if is_panic(&response) {
            return Ok(response);
        }
        if let Some(saved) = session.save()? {
            self.tell(saved, is_secure, &mut response)?;
        }
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<Session>();
    }
}

/// Says that a response is for one browser. One that gives out a session is not to be kept by
/// shared caches, whatever the handler said of it.
fn mark_personal(response: &mut Response, gives_session: bool) -> Result<()> {
    let says = |control: &str, directive: &str| {
        control.split(',').any(|said| said.trim().eq_ignore_ascii_case(directive))
    };
    let is_shared = match response.headers().get_str("cache-control") {
        Some(control) => gives_session && !says(control, "private") && !says(control, "no-store"),
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
        f.debug_struct("Sessions").field("lifetime", &self.keeper.lifetime).finish_non_exhaustive()
    }
}
