//! An app that restarts without a failed request.
//!
//! ```sh
//! cargo run -p restarts -- 127.0.0.1:5000 /tmp/app.sock
//! cargo run -p restarts -- 127.0.0.1:5000 /tmp/app.sock    # once more, in another terminal
//! cargo run -p restarts                      # listens on the sockets that systemd has bound
//! ```
//!
//! The second process takes over from the first one, which ends. No client notices.
//!
//! A load balancer asks for `/ready`. After SIGTERM, the response says that the app is about to
//! stop, and the app serves for two more seconds. Choose that time so that the balancer's checks
//! notice it.

use std::time::Duration;
use std::{env, process};

use filoplume::prelude::*;

fn main() -> filoplume::Result<()> {
    let config = ServerConfig::behind_proxy().lame_duck(Duration::from_secs(2));
    let mut app = App::new()
        .get("/", || format!("process {}", process::id()))
        .health(Health::new())
        .config(config)
        .on_shutdown(|| eprintln!("every request is answered"));
    if let Some(path) = env::args().nth(2) {
        app = app.hot_restart(path);
    }
    match env::args().nth(1) {
        Some(address) => app.listen(&*address),
        None => app.listen_systemd(),
    }
}
