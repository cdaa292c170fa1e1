//! A page on one origin that uses an API on another one: two apps in one program.
//!
//! `cors_spa [API_ADDRESS [PAGE_ADDRESS]]`; then open the page, by default <http://127.0.0.1:5001>.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use filoplume::prelude::*;
use middleware::Cors;
use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, Serialize)]
struct Message {
    text: String,
}

type Messages = Arc<Mutex<Vec<Message>>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let api_address = arguments.next().unwrap_or_else(|| "127.0.0.1:5000".to_owned());
    let page_address = arguments.next().unwrap_or_else(|| "127.0.0.1:5001".to_owned());
    let page = page(&format!("http://{api_address}"));
    let page = page.start(&*page_address)?;
    let result = api(&format!("http://{page_address}")).listen(&*api_address);
    page.shutdown();
    result
}

/// The API. It answers every client, but browsers let only pages of this origin read the responses.
fn api(origin: &str) -> App {
    App::new().route("/messages", get(list).post(add)).state(Messages::default()).with(
        Cors::new()
            .allow_origin(origin)
            .allow_methods([Method::GET, Method::POST])
            .allow_headers(["content-type"])
            .max_age(Duration::from_secs(600)),
    )
}

fn list(State(messages): State<Messages>) -> Result<Json<Vec<Message>>> {
    Ok(Json(lock(&messages)?.clone()))
}

fn add(State(messages): State<Messages>, Json(message): Json<Message>) -> Result<StatusCode> {
    lock(&messages)?.push(message);
    Ok(StatusCode::CREATED)
}

fn lock(messages: &Messages) -> Result<std::sync::MutexGuard<'_, Vec<Message>>> {
    messages.lock().map_err(|_| Error::unavailable("the messages are lost"))
}

/// The page, which has a script.
fn page(api: &str) -> App {
    let html = include_str!("cors_spa.html").replace("API_ORIGIN", api);
    App::new().get("/", move || Html(html.clone()))
}
