//! The page: the latest notes, which grow by the live feed. Its script uses the API.

use filoplume::Result;
use filoplume::prelude::*;

use crate::accounts::User;
use crate::database::{Database, Transaction, Transactions};
use crate::notes::latest;

pub(crate) fn router(database: &Database) -> Router {
    let script = || ([("content-type", "text/javascript")], include_str!("templates/page.js"));
    let pages = Router::new()
        .get("/", index)
        .with(database.permits().clone())
        .with(Transactions::new(database.clone()));
    // The script does not need the database, so it is served while that is away.
    Router::new().merge(pages).get("/page.js", script)
}

pub(crate) fn templates() -> Result<Templates> {
    Templates::from_strings([("index.html", include_str!("templates/index.html"))])
}

fn index(
    session: Session,
    transaction: Transaction,
    State(templates): State<Templates>,
) -> Result<Html<String>> {
    let user = User::of(&session)?;
    let notes = latest(&transaction)?;
    templates.render("index.html", context! { user, notes })
}
