use filoplume::prelude::*;
use filoplume::{Context, FromRequest};

struct User;

impl FromRequest for User {
    type Rejection = Redirect;

    fn from_request(_: &mut Request, _: &Context<'_>) -> Result<Self, Redirect> {
        Err(Redirect::to("/login"))
    }
}

fn main() {
    let _ = App::new().get("/", |user: Option<User>| user.map_or("stranger", |_| "friend"));
}
