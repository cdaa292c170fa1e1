//! Signing in: sessions, flash messages, and forms that other sites cannot submit. The user is
//! `ada`, the password `lovelace`.
//!
//! Open <http://127.0.0.1:5000>, or:
//!
//! ```sh
//! curl -c jar -b jar http://127.0.0.1:5000/visits
//! curl -c jar -b jar http://127.0.0.1:5000/visits
//! ```

use filoplume::Key;
use filoplume::prelude::*;
use filoplume::session::{Flash, MemoryStore, Session};
use middleware::{Csrf, CsrfToken, Sessions, secrets_match};
use serde::Deserialize;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    App::new()
        .get("/", home)
        .post("/login", login)
        .post("/logout", logout)
        .get("/visits", visits)
        .get("/secret", |user: User| format!("{}, the word is sesame", user.0))
        // The first is the outermost: `Csrf` keeps its token in the session. Over plain HTTP,
        // cookies must not be `Secure`. Behind a proxy with TLS, leave `secure(false)` out.
        .with(Sessions::new(MemoryStore::new(), Key::generate()).secure(false))
        .with(Csrf::new())
}

/// The user who is signed in. As a parameter it refuses all other requests.
struct User(String);

impl filoplume::FromRequest for User {
    type Rejection = Error;

    fn from_request(request: &mut Request, _: &filoplume::Context<'_>) -> Result<Self> {
        let name = Session::of(request)?.subject()?;
        name.map(Self).ok_or_else(|| Error::unauthorized("sign in first"))
    }
}

#[derive(Deserialize)]
struct Credentials {
    name: String,
    password: String,
}

fn home(session: Session, flash: Flash, token: CsrfToken) -> Result<Html<String>> {
    let messages: String =
        flash.take()?.iter().map(|message| format!("<p><b>{}</b></p>", message.text)).collect();
    let form = match session.subject()? {
        // Only names that can sign in get here. Use templates, which escape, for pages with any
        // other text.
        Some(name) => format!(
            "<p>Hello, {name}!</p><form method=post action=/logout>{}<button>Sign \
             out</button></form>",
            token.field()
        ),
        None => format!(
            "<form method=post action=/login>{}<input name=name> <input name=password \
             type=password> <button>Sign in</button></form>",
            token.field()
        ),
    };
    Ok(Html(format!("<!doctype html><title>Sessions</title>{messages}{form}")))
}

fn login(session: Session, flash: Flash, Form(credentials): Form<Credentials>) -> Result<Redirect> {
    // A real app compares with a hash from a database: see `sqlite_todo`.
    if credentials.name == "ada" && secrets_match(&credentials.password, "lovelace") {
        // Also changes the session ID, to prevent session fixation.
        session.log_in(credentials.name)?;
        flash.success("You are signed in.")?;
    } else {
        flash.error("That is not right.")?;
    }
    Ok(Redirect::to("/"))
}

fn logout(session: Session) -> Result<Redirect> {
    session.destroy()?;
    Ok(Redirect::to("/"))
}

fn visits(session: Session) -> Result<String> {
    let visits = session.get::<u32>("visits")?.unwrap_or(0) + 1;
    session.insert("visits", visits)?;
    Ok(format!("visit {visits}"))
}
