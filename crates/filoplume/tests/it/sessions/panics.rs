//! Changes before a panic, in apps that answer panics by their own pages.

use filoplume::middleware::CatchPanic;
use filoplume::session::MemoryStore;

use super::*;

/// Adds what turns a panic into a page, inside of the middleware of `app`.
type Catches = fn(App) -> App;

const CATCHES: [Catches; 4] = [
    |app| app.with(CatchPanic::new().respond(|_: &str| (StatusCode::OK, "sorry"))),
    |app| app.with(CatchPanic::new().respond(|_: &str| Err::<(), _>(Error::conflict("sorry")))),
    |app| {
        app.with(|request: Request, next: Next<'_>| {
            next.run_catching(request).unwrap_or_else(|_| Response::from("sorry"))
        })
    },
    // The inner one adds to what the panic has become.
    |app| app.with(CatchPanic::new().respond(|_: &str| "sorry")).with(CatchPanic::new()),
];

#[test]
fn a_page_for_a_panic_saves_no_changes() {
    for catches in CATCHES {
        let store = Arc::new(MemoryStore::new());
        for sessions in [Sessions::new(Arc::clone(&store), key()), Sessions::in_cookie(key())] {
            let client = catches(app(sessions)).test();
            let page = client.post("/panic").send();
            page.assert_no_header("set-cookie");
            assert!(matches!(page.status().as_u16(), 200 | 409), "{page:?}");
            // The same middleware saves what succeeds.
            client.put("/color/red").send().assert_status(200);
            client.get("/color").send().assert_text("Some(\"red\")");
        }
        assert_eq!(store.len(), 1);
    }
}
