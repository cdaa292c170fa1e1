use filoplume::prelude::*;

fn tea() -> Result<&'static str, String> {
    Err("no tea".to_owned())
}

fn main() {
    let _ = App::new().get("/", tea);
}
