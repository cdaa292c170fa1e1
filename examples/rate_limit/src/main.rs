//! Rate limits: few requests per client and second, and more for clients with a key.
//!
//! ```sh
//! for i in 1 2 3 4 5 6 7; do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:5000/; done
//! ```

use filoplume::prelude::*;
use middleware::{BearerAuth, RateLimit, secrets_match};

/// The clients and their keys. A real app has them in its database, hashed.
const KEYS: [(&str, &str); 2] = [("ada", "key-of-ada"), ("grace", "key-of-grace")];

/// The client whose key came with the request.
#[derive(Clone)]
struct Caller(&'static str);

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    // By address: five at once, then one per second. Further requests get a 429 with `Retry-After`.
    let public = Router::new().get("/", || "Hello!").with(RateLimit::per_second(1).burst(5));
    // By client: each has ten at once and a hundred per minute, from any address. The key is
    // checked first, because whoever can invent keys has no limit.
    let check = BearerAuth::new(|token: &str| {
        let found = KEYS.iter().find(|(_, key)| secrets_match(token, key));
        found.map(|(name, _)| Caller(name))
    });
    let limit = RateLimit::per_minute(100)
        .burst(10)
        .key(|request| request.extensions().get::<Caller>().map(|Caller(name)| (*name).to_owned()));
    let keyed = Router::new()
        .get("/report", |Extension(Caller(name)): Extension<Caller>| {
            format!("the report for {name}")
        })
        .with(check)
        .with(limit);
    App::new().merge(public).nest("/api", keyed)
}
