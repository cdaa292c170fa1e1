use filoplume::prelude::*;

struct Database;

fn list(_: Database) -> &'static str {
    "everything"
}

fn main() {
    let _ = App::new().get("/", list);
}
