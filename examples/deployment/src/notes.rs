//! Notes that everybody sees, and the live feed of new ones.

use diesel::prelude::*;
use filoplume::Result;
use filoplume::prelude::*;
use filoplume::sse::{Event, EventStream, Hub, LastEventId};
use serde::{Deserialize, Serialize};

use crate::accounts::User;
use crate::database::Transaction;
use crate::schema::{notes, users};

/// The longest note.
const CHARACTERS_MAX: usize = 280;

/// How many notes are shown.
const SHOWN: i64 = 50;

#[derive(Queryable, Serialize)]
pub(crate) struct Note {
    id: i64,
    author: String,
    text: String,
}

#[derive(Deserialize)]
struct NewNote {
    text: String,
}

pub(crate) fn router() -> Router {
    Router::new().route("/notes", get(list).post(add))
}

/// Returns the latest notes, the newest first.
pub(crate) fn latest(transaction: &Transaction) -> Result<Vec<Note>> {
    transaction.run(|connection| {
        notes::table
            .inner_join(users::table)
            .select((notes::id, users::name, notes::text))
            .order(notes::id.desc())
            .limit(SHOWN)
            .load(connection)
    })
}

fn list(transaction: Transaction) -> Result<Json<Vec<Note>>> {
    Ok(Json(latest(&transaction)?))
}

fn add(
    user: User,
    transaction: Transaction,
    State(hub): State<Hub>,
    Json(note): Json<NewNote>,
) -> Result<(StatusCode, Json<i64>)> {
    let text = note.text.trim().to_owned();
    if text.is_empty() || text.chars().count() > CHARACTERS_MAX {
        return Err(Error::unprocessable(format!("a note has 1 to {CHARACTERS_MAX} characters")));
    }
    let id: i64 = transaction.run(|connection| {
        diesel::insert_into(notes::table)
            .values((notes::author.eq(user.id), notes::text.eq(&text)))
            .returning(notes::id)
            .get_result(connection)
    })?;
    let event = Event::json(&Note { id, author: user.name, text })?.event("note")?;
    // Readers must not see a note that is rolled back.
    transaction.after_commit(move || _ = hub.send(event));
    Ok((StatusCode::CREATED, Json(id)))
}

/// The stream of a reader. It needs no thread and no connection of the database.
pub(crate) fn feed(State(hub): State<Hub>, last: LastEventId) -> EventStream {
    hub.subscribe_with_history(&last)
}
