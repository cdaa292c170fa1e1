//! Accounts. The session, which is in Redis, has the user who is logged in.

use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, SaltString};
use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use diesel::prelude::*;
use filoplume::middleware::RateLimit;
use filoplume::prelude::*;
use filoplume::{Context, FromRequest, Result};
use serde::{Deserialize, Serialize};

use crate::database::Transaction;
use crate::schema::users;

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
    Router::new()
        .post("/accounts", register)
        // Each attempt costs a processor a good part of a second.
        .route("/login", post(log_in).with(RateLimit::per_minute(30)))
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
    let salt = SaltString::generate(&mut OsRng);
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt).map_err(cannot_hash)?;
    let id = transaction.run(|connection| {
        diesel::insert_into(users::table)
            .values((users::name.eq(&name), users::password.eq(hash.to_string())))
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
    let wrong = || Error::forbidden("there is nobody with this name and password");
    let (id, hash) = found.ok_or_else(wrong)?;
    let hash = PasswordHash::new(&hash).map_err(cannot_hash)?;
    Argon2::default().verify_password(password.as_bytes(), &hash).map_err(|_| wrong())?;
    User { id, name }.log_in(&session)?;
    Ok(StatusCode::NO_CONTENT)
}

fn cannot_hash(error: argon2::password_hash::Error) -> Error {
    Error::internal(error.to_string())
}
