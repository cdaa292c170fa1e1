//! A site of files: a folder with an index, long-lived assets, and a page for missing files.
//!
//! ```sh
//! curl -i http://127.0.0.1:5000/
//! curl -i -H 'Range: bytes=0-9' http://127.0.0.1:5000/docs/
//! ```

use std::path::Path;
use std::time::Duration;

use filoplume::prelude::*;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("public");
    App::new()
        .get("/api/time", || format!("{:?}", std::time::SystemTime::now()))
        // Files with a version in their name never change, so browsers may cache them forever.
        .files("/assets", StaticFiles::folder(folder.join("assets")).immutable())
        // All other paths. Routes take precedence over files.
        .files("/", StaticFiles::folder(folder).max_age(Duration::from_secs(60)))
        .with(middleware::Logger::new())
        .with(middleware::SecurityHeaders::new())
        .with(middleware::Compression::new())
}
