//! State that handlers share: a counter, and settings.
//!
//! ```sh
//! curl -X POST http://127.0.0.1:5000/visits
//! curl http://127.0.0.1:5000/visits
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use filoplume::prelude::*;

/// Cloned for each call that takes it, so shared values are in an `Arc`.
#[derive(Clone, Default)]
struct Visits(Arc<AtomicU64>);

type Scores = Arc<Mutex<HashMap<String, i64>>>;

struct Settings {
    name: String,
}

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    App::new()
        .get("/", |State(settings): State<Arc<Settings>>| format!("Welcome to {}", settings.name))
        .route(
            "/visits",
            get(|State(Visits(count)): State<Visits>| count.load(Ordering::Relaxed).to_string())
                .post(|State(Visits(count)): State<Visits>| {
                    (count.fetch_add(1, Ordering::Relaxed) + 1).to_string()
                }),
        )
        .route("/scores/{player}", get(score).put(set_score))
        .state(Visits::default())
        .state(Scores::default())
        .state(Arc::new(Settings { name: "the state example".to_owned() }))
}

fn score(Path(player): Path<String>, State(scores): State<Scores>) -> Option<String> {
    let scores = scores.lock().ok()?;
    scores.get(&player).map(i64::to_string)
}

fn set_score(
    Path(player): Path<String>,
    State(scores): State<Scores>,
    text: String,
) -> Result<StatusCode> {
    let score =
        text.trim().parse().map_err(|_| Error::unprocessable("a score is a whole number"))?;
    let mut scores = scores.lock().map_err(|_| Error::unavailable("the scores are lost"))?;
    scores.insert(player, score);
    Ok(StatusCode::NO_CONTENT)
}
