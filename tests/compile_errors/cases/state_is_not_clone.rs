use filoplume::prelude::*;

struct Database;

fn main() {
    let _ = App::new().get("/", |State(_): State<Database>| "hello").state(Database);
}
