//! Middleware: closures and structs around handlers, for the app, a router or one route, and the
//! included ones.
//!
//! ```sh
//! curl -i http://127.0.0.1:5000/
//! curl -i http://127.0.0.1:5000/admin
//! curl -i -H 'x-key: sesame' http://127.0.0.1:5000/admin
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use filoplume::prelude::*;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    let counter = Counter::default();
    App::new()
        .get("/", || "Hello!")
        .route("/slow", get(|| "that took a while").with(wait))
        .nest(
            "/admin",
            Router::new()
                .get("/", |Extension(Who(name)): Extension<Who>| format!("Hello, {name}!"))
                .with(only_friends),
        )
        .get("/count", |State(counter): State<Counter>| {
            counter.0.load(Ordering::Relaxed).to_string()
        })
        .state(counter.clone())
        // The first is the outermost: it sees the request first and the response last.
        .with(middleware::Logger::new())
        .with(middleware::SecurityHeaders::new())
        .with(counter)
        .with(|request: Request, next: Next| {
            let started = Instant::now();
            let mut response = next.run(request);
            let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
            response.set_header("server-timing", format!("app;dur={milliseconds:.3}"))?;
            Ok::<_, Error>(response)
        })
}

/// The client's identity, which middleware adds to the request and handlers take as an `Extension`.
#[derive(Clone)]
struct Who(String);

/// A function is middleware too. If it returns early or with an `Err`, the handler is not called.
fn only_friends(mut request: Request, next: Next) -> Result<Response> {
    match request.header("x-key") {
        Some("sesame") => {
            request.extensions_mut().insert(Who("friend".to_owned()));
            Ok(next.run(request))
        }
        Some(_) => Err(Error::forbidden("that is not the word")),
        None => Redirect::to("/").into_response(),
    }
}

/// Middleware may block.
fn wait(request: Request, next: Next) -> Response {
    std::thread::sleep(std::time::Duration::from_millis(20));
    next.run(request)
}

/// A struct, for middleware with settings or state of its own.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Middleware for Counter {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(next.run(request))
    }
}
