//! Rate limits: few requests per client and second, and more for clients with a key.
//!
//! ```sh
//! for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:5000/; done
//! ```

use filoplume::prelude::*;
use middleware::RateLimit;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    // By address: five at once, then one per second. Further requests get a 429 with `Retry-After`.
    let public = Router::new().get("/", || "Hello!").with(RateLimit::per_second(1).burst(5));
    // By key: each key has ten at once and a hundred per minute, from any address. A request
    // without a key has no limit, and the next middleware refuses it.
    let keyed = Router::new()
        .get("/report", || "the report")
        .with(
            RateLimit::per_minute(100)
                .burst(10)
                .key(|request| request.header("x-api-key").map(str::to_owned)),
        )
        .with(|request: Request, next: Next| match request.header("x-api-key") {
            Some(_) => Ok(next.run(request)),
            None => Err(Error::unauthorized("send your key as `x-api-key`")),
        });
    App::new().merge(public).nest("/api", keyed)
}
