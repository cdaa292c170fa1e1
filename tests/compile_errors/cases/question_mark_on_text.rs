use filoplume::prelude::*;

fn first(names: Vec<String>) -> Result<String> {
    let name = names.into_iter().next().ok_or("there is no name")?;
    Ok(name)
}

fn main() {
    let _ = App::new().get("/", || first(Vec::new()));
}
