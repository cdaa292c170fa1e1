use filoplume::prelude::*;

enum ShopError {
    SoldOut,
}

fn buy() -> Result<&'static str, ShopError> {
    Err(ShopError::SoldOut)
}

fn main() {
    let _ = App::new().get("/", buy);
}
