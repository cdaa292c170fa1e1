//! Pages and forms.

use filoplume::Permits;
use filoplume::prelude::*;
use filoplume::session::{Flash, Session};
use filoplume::template::{Templates, context};
use middleware::{CsrfToken, RateLimit};
use serde::Deserialize;

use crate::User;
use crate::store::Store;

/// The attempts per minute of each client to log in, and as many to register.
const ATTEMPTS: u32 = 30;

pub(crate) fn router(hashes: &Permits) -> Router {
    let attempts = || RateLimit::per_minute(ATTEMPTS);
    Router::new()
        .get("/", index)
        .route("/login", get(login_page))
        .route("/login", post(login).with(attempts()).uses(hashes))
        .route("/register", post(register).with(attempts()).uses(hashes))
        .post("/logout", logout)
        .post("/todos", add)
        .post("/todos/{id}/done", |user: User, store: State<Store>, Path(id): Path<i64>| {
            set_done(&user, &store, id, true)
        })
        .post("/todos/{id}/undo", |user: User, store: State<Store>, Path(id): Path<i64>| {
            set_done(&user, &store, id, false)
        })
        .post("/todos/{id}/remove", remove)
}

#[derive(Deserialize)]
struct Credentials {
    name: String,
    password: String,
}

#[derive(Deserialize)]
struct NewTodo {
    text: String,
}

/// The list, or a redirect to the sign-in page.
fn index(
    session: Session,
    State(store): State<Store>,
    State(templates): State<Templates>,
    flash: Flash,
    csrf: CsrfToken,
) -> Result<Response> {
    let Some(user) = User::of(&session)? else {
        return Redirect::to("/login").into_response();
    };
    let todos = store.todos(user.id)?;
    let page =
        context! { name => user.name, todos, messages => flash.take()?, csrf => csrf.field() };
    templates.render("todos.html", page).into_response()
}

fn login_page(
    State(templates): State<Templates>,
    flash: Flash,
    csrf: CsrfToken,
) -> Result<Html<String>> {
    templates.render("login.html", context! { messages => flash.take()?, csrf => csrf.field() })
}

fn login(
    State(store): State<Store>,
    session: Session,
    flash: Flash,
    Form(credentials): Form<Credentials>,
) -> Result<Redirect> {
    let Credentials { name, password } = credentials;
    match store.login(&name, &password)? {
        Some(id) => sign_in(&session, User { id, name }),
        None => {
            flash.error("There is nobody with this name and password.")?;
            Ok(Redirect::to("/login"))
        }
    }
}

fn register(
    State(store): State<Store>,
    session: Session,
    flash: Flash,
    Form(credentials): Form<Credentials>,
) -> Result<Redirect> {
    let Credentials { name, password } = credentials;
    if name.trim().is_empty() || name.chars().count() > 40 || password.chars().count() < 8 {
        flash.error("A name has 1 to 40 characters, a password at least 8.")?;
        return Ok(Redirect::to("/login"));
    }
    match store.register(&name, &password)? {
        Some(id) => sign_in(&session, User { id, name }),
        None => {
            flash.error("The name is taken.")?;
            Ok(Redirect::to("/login"))
        }
    }
}

fn sign_in(session: &Session, user: User) -> Result<Redirect> {
    // Changes the session ID, to prevent session fixation.
    session.log_in(user.id.to_string())?;
    session.insert(User::SESSION_KEY, user)?;
    Ok(Redirect::to("/"))
}

fn logout(session: Session) -> Result<Redirect> {
    session.destroy()?;
    Ok(Redirect::to("/login"))
}

fn add(
    user: User,
    State(store): State<Store>,
    flash: Flash,
    Form(todo): Form<NewTodo>,
) -> Result<Redirect> {
    match todo.text.trim() {
        "" => flash.error("Say what is to be done.")?,
        text => {
            store.add(user.id, text)?;
        }
    }
    Ok(Redirect::to("/"))
}

fn set_done(user: &User, store: &Store, id: i64, is_done: bool) -> Result<Redirect> {
    found(store.set_done(user.id, id, is_done)?)
}

fn remove(user: User, State(store): State<Store>, Path(id): Path<i64>) -> Result<Redirect> {
    found(store.remove(user.id, id)?)
}

/// Redirects to the list. A todo of another user counts as not found.
fn found(is_there: bool) -> Result<Redirect> {
    if is_there { Ok(Redirect::to("/")) } else { Err(Error::not_found("there is no such todo")) }
}
