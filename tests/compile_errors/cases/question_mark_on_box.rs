use filoplume::prelude::*;

fn count() -> Result<u32, Box<dyn std::error::Error>> {
    Ok(std::fs::read_to_string("count.txt")?.parse()?)
}

fn main() {
    let _ = App::new().get("/", || -> Result<String> { Ok(count()?.to_string()) });
}
