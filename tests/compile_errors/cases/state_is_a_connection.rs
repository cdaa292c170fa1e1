use std::cell::RefCell;
use std::sync::Arc;

use filoplume::prelude::*;

/// As that of `rusqlite`: it can be sent to another thread, and not be shared.
struct Connection(RefCell<u64>);

fn main() {
    let connection = Arc::new(Connection(RefCell::new(0)));
    let _ = App::new().get("/", || "hello").state(connection);
}
