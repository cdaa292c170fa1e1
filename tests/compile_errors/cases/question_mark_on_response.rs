//! `?` on the response of the rest of the chain.

use filoplume::prelude::*;

fn logged(request: Request, next: Next) -> Result<Response> {
    let response = next.run(request)?;
    Ok(response)
}

fn main() {
    let _ = App::new().with(logged);
}
