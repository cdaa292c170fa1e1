//! The page: the latest notes, which grow by the live feed. Its script uses the API.

use filoplume::Result;
use filoplume::prelude::*;

use crate::accounts::User;
use crate::database::Transaction;
use crate::notes::latest;

pub(crate) fn router() -> Router {
    Router::new().get("/", index).get("/page.js", || {
        ([("content-type", "text/javascript")], include_str!("templates/page.js"))
    })
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
