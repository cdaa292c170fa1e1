//! Numbers as values of headers.

use filoplume::prelude::*;

struct Count;

fn main() {
    App::new()
        .get("/array", || ([("x-count", 3)], "three"))
        .get("/set", || -> Result<Response> {
            let mut response = "three".into_response()?;
            response.set_header("x-count", 3)?;
            Ok(response)
        })
        .get("/error", || -> Result<()> {
            Err(Error::unavailable("later").with_header("retry-after", Count)?)
        });
}
