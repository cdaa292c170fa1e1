//! The methods of a route are two arguments, and the advice of the compiler removes one.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().route("/notes", get(|| "notes"), post(|| StatusCode::CREATED));
}
