//! An app with a console, and routes with different troubles to find in it.
//!
//! ```sh
//! cargo run --release -p live_console                            # then open /console
//! cargo run --release -p gust -- http://127.0.0.1:5000/ -c 16 -d 60s
//! cargo run --release -p gust -- http://127.0.0.1:5000/report -c 8 -d 60s
//! curl http://127.0.0.1:5000/export
//! curl http://127.0.0.1:5000/broken
//! ```
//!
//! The console opens in a browser on this machine. With a password in `CONSOLE_PASSWORD`, everybody
//! who knows it can open the console as the user `admin`.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use filoplume::Console;
use filoplume::middleware::RequestIds;
use filoplume::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let console = match std::env::var("CONSOLE_PASSWORD") {
        Ok(password) => Console::with_password("admin", password),
        Err(_) => Console::local(),
    };
    app(console).listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app(console: Console) -> App {
    App::new()
        .get("/", || "Hello!")
        .get("/primes/{max}", |Path(max): Path<u32>| primes(max.min(200_000)).to_string())
        .get("/report", report)
        .get("/export", || thread::sleep(MS * 3000))
        .get("/broken", || Err::<(), _>(Error::internal("the disk is full")))
        .console("/console", console)
        .slow_after(MS * 500)
        .config(ServerConfig::default().threads_max(64))
        .with(RequestIds::new())
}

/// A handler that computes. It stays on the event loops as long as it is quick.
fn primes(max: u32) -> usize {
    (2..max).filter(|number| (2..*number).all(|divisor| number % divisor != 0)).count()
}

/// All calls wait for one lock, and hold it while they wait for a database.
fn report() -> &'static str {
    static DATABASE: Mutex<()> = Mutex::new(());
    let _connection = DATABASE.lock().unwrap_or_else(PoisonError::into_inner);
    thread::sleep(MS * 40);
    "a report"
}
