//! A complete small app: todos in SQLite, with pages, forms, a JSON API, sessions and tests.
//!
//! `sqlite_todo [ADDRESS [DATABASE]]`; then open <http://127.0.0.1:5000> and register. Without
//! `SECRET_KEY` in the environment all users are signed out when the program ends.
//!
//! - `passwords` hashes passwords.
//! - `store` knows SQL and no HTTP. Every call blocks, and that is fine.
//! - `pages` has the pages: forms that are posted, and a redirect to the page that shows the
//!   result.
//! - `api` has the API for programs, below `/api`.

mod api;
mod pages;
mod passwords;
mod store;
#[cfg(test)]
mod tests;

use std::time::Duration;

use filoplume::prelude::*;
use filoplume::session::Session;
use filoplume::template::Templates;
use filoplume::{Key, Permits};
use middleware::{BodyLimit, Compression, Csrf, Logger, RateLimit, SecurityHeaders, Sessions};

use crate::store::Store;

/// How many requests compute the hash of a password at once. Each takes a processor for some 20 ms,
/// and 19 MiB. Others wait without a thread.
const HASHES: usize = 4;

/// Todos are short, and so are their forms.
const CONTENT_BYTES_MAX: u64 = 64 * 1024;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:5000".to_owned());
    let database = arguments.next().unwrap_or_else(|| "todos.db".to_owned());
    let key = match std::env::var_os("SECRET_KEY") {
        Some(_) => Key::from_env("SECRET_KEY")?,
        None => Key::generate(),
    };
    app(Store::open(&database)?, key)?.listen(&*address)
}

/// The app, for `main` and for the tests.
fn app(store: Store, key: Key) -> Result<App> {
    // There is no TLS between the browser and this program. Behind a proxy with TLS leave `secure`
    // out.
    let sessions =
        Sessions::in_cookie(key).idle_timeout(Duration::from_secs(7 * 24 * 3600)).secure(false);
    let hashes = Permits::new("password hashes", HASHES);
    Ok(App::new()
        .merge(pages::router(&hashes).with(Csrf::new()))
        .nest("/api", api::router(store.clone()).with(hashes))
        .state(store)
        .state(templates()?)
        // The first one sees what all others answer.
        .with(Logger::new())
        .with(SecurityHeaders::new())
        .with(Compression::new())
        .with(RateLimit::per_second(50).burst(200))
        .with(BodyLimit::new(CONTENT_BYTES_MAX))
        .with(sessions))
}

fn templates() -> Result<Templates> {
    Templates::from_strings([
        ("layout.html", include_str!("templates/layout.html")),
        ("login.html", include_str!("templates/login.html")),
        ("todos.html", include_str!("templates/todos.html")),
    ])
}

/// The user who is signed in. It is kept in the session, and is an extractor for handlers.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
struct User {
    id: i64,
    name: String,
}

impl User {
    const SESSION_KEY: &str = "user";

    fn of(session: &Session) -> Result<Option<Self>> {
        session.get(Self::SESSION_KEY)
    }
}

impl filoplume::FromRequest for User {
    type Rejection = Error;

    fn from_request(request: &mut Request, _: &filoplume::Context<'_>) -> Result<Self> {
        Self::of(&Session::of(request)?)?.ok_or_else(|| Error::unauthorized("sign in first"))
    }
}
