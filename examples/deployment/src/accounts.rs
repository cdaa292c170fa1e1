//! Accounts. The session, which is in Redis, has the user who is logged in.

use diesel::prelude::*;
use filoplume::middleware::RateLimit;
use filoplume::prelude::*;
use filoplume::{Context, FromRequest, Permits, Result};
use serde::{Deserialize, Serialize};

use crate::database::Transaction;
use crate::passwords;
use crate::schema::users;

/// How many logins and registrations an instance runs at once. Each computes a hash, which takes a
/// processor for some 20 ms, and 19 MiB. Others wait without a thread.
const HASHES: usize = 4;

/// The attempts per minute of each client to log in, and as many to register.
const ATTEMPTS: u32 = 30;

/// A user who is logged in, as a parameter of handlers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct User {
    pub(crate) id: i64,
    pub(crate) name: String,
}

impl User {
    const SESSION_KEY: &str = "user";

    pub(crate) fn of(session: &Session) -> Result<Option<Self>> {
        session.get(Self::SESSION_KEY)
    }

    fn log_in(self, session: &Session) -> Result<()> {
        session.log_in(self.id.to_string())?;
        session.insert(Self::SESSION_KEY, self)
    }
}

impl FromRequest for User {
    type Rejection = Error;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self> {
        Self::of(&Session::of(request)?)?.ok_or_else(|| Error::unauthorized("log in first"))
    }
}

#[derive(Deserialize)]
struct Credentials {
    name: String,
    password: String,
}

pub(crate) fn router() -> Router {
    let hashes = Permits::new("password hashes", HASHES);
    let attempts = || RateLimit::per_minute(ATTEMPTS);
    Router::new()
        .route("/accounts", post(register).with(attempts()).uses(&hashes))
        .route("/login", post(log_in).with(attempts()).uses(&hashes))
        .post("/logout", |session: Session| session.destroy())
}

fn register(
    transaction: Transaction,
    session: Session,
    Json(credentials): Json<Credentials>,
) -> Result<StatusCode> {
    let Credentials { name, password } = credentials;
    if name.trim().is_empty() || name.chars().count() > 40 || password.chars().count() < 8 {
        let detail = "a name has 1 to 40 characters, a password at least 8";
        return Err(Error::unprocessable(detail));
    }
    // The transaction begins with the query, so it is not open while the hash is computed.
    let hash = passwords::hash(&password)?;
    let id = transaction.run(|connection| {
        diesel::insert_into(users::table)
            .values((users::name.eq(&name), users::password.eq(hash)))
            .on_conflict_do_nothing()
            .returning(users::id)
            .get_result(connection)
            .optional()
    })?;
    let id = id.ok_or_else(|| Error::conflict("the name is taken"))?;
    User { id, name }.log_in(&session)?;
    Ok(StatusCode::CREATED)
}

fn log_in(
    transaction: Transaction,
    session: Session,
    Json(credentials): Json<Credentials>,
) -> Result<StatusCode> {
    let Credentials { name, password } = credentials;
    let found: Option<(i64, String)> = transaction.run(|connection| {
        users::table
            .filter(users::name.eq(&name))
            .select((users::id, users::password))
            .first(connection)
            .optional()
    })?;
    // Checking the password takes much longer than the query. Meanwhile others can use the
    // connection.
    transaction.commit()?;
    let stored = found.as_ref().map(|(_, hash)| hash.as_str());
    let is_right = passwords::is_right(&password, stored)?;
    let Some((id, _)) = found.filter(|_| is_right) else {
        return Err(Error::forbidden("there is nobody with this name and password"));
    };
    User { id, name }.log_in(&session)?;
    Ok(StatusCode::NO_CONTENT)
}
