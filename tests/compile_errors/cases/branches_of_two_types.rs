use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/{id}", |Path(id): Path<u64>| if id == 0 { "nobody" } else { format!("user {id}") });
}
