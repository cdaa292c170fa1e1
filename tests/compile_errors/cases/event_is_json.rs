//! A value that is sent to a hub without `Event::json`, and one without `?`.

use filoplume::sse::{Event, Hub, channel};
use serde_json::json;

struct Post;

fn main() {
    let hub = Hub::new();
    hub.send(json!({ "text": "hello" }));
    hub.send(Post);
    hub.send(Event::new("hello").event("post"));
    let (sender, _stream) = channel();
    let _ = sender.send(17);
}
