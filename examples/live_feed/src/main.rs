//! A page that shows posts as they are made, by server-sent events.
//!
//! `live_feed [ADDRESS]`; then open <http://127.0.0.1:5000> in two windows.

use filoplume::prelude::*;
use filoplume::sse::{Event, EventStream, Hub, LastEventId};
use serde::{Deserialize, Serialize};

/// The longest post.
const CHARACTERS_MAX: usize = 280;
/// The longest name.
const NAME_CHARACTERS_MAX: usize = 40;

#[derive(Deserialize, Serialize)]
struct Post {
    name: String,
    text: String,
}

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:5000".to_owned());
    // A reader that connects again gets what it has missed of the last hundred posts.
    let hub = Hub::new().replay(100);
    App::new()
        .get("/", || Html(include_str!("live_feed.html")))
        .get("/feed", feed)
        .post("/posts", post)
        .state(hub)
        .listen(&*address)
}

/// The stream of a reader. It needs no thread, so a few threads serve thousands of readers.
fn feed(State(hub): State<Hub>, last: LastEventId) -> EventStream {
    hub.subscribe_with_history(&last)
}

fn post(State(hub): State<Hub>, Json(post): Json<Post>) -> Result<StatusCode> {
    if post.text.trim().is_empty() || post.text.chars().count() > CHARACTERS_MAX {
        return Err(Error::unprocessable(format!("a post has 1 to {CHARACTERS_MAX} characters")));
    }
    // The hub keeps a hundred posts for everybody.
    if post.name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(Error::unprocessable(format!(
            "a name has up to {NAME_CHARACTERS_MAX} characters"
        )));
    }
    hub.send(Event::json(&post)?.event("post")?);
    Ok(StatusCode::CREATED)
}
