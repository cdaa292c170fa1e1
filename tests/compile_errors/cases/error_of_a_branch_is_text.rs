use filoplume::prelude::*;

fn tea() -> Result<(), &'static str> {
    Err("no tea")
}

fn main() {
    let _ = App::new().route("/", get(|| "milk").post(tea));
}
