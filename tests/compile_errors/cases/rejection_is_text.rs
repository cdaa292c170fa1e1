//! The rejection of an extractor has no status.

use filoplume::prelude::*;
use filoplume::{Context, FromRequest};

struct User;

impl FromRequest for User {
    type Rejection = String;

    fn from_request(_: &mut Request, _: &Context<'_>) -> std::result::Result<Self, String> {
        Err("log in first".to_owned())
    }
}

fn main() {
    App::new().get("/", |_: User| "hello").listen("127.0.0.1:5000").unwrap();
}
