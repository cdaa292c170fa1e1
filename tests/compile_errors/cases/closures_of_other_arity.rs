//! Credentials come as one value, and errors are presented by two parameters.

use filoplume::middleware::BasicAuth;
use filoplume::prelude::*;

fn main() {
    App::new()
        .with(BasicAuth::new("ada", "sesame"))
        .with(BasicAuth::new(|user: &str, password: &str| user == password))
        .present_errors(|error| None)
        .present_errors(|error, _| Html(error.to_string()));
}
