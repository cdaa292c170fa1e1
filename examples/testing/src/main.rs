//! Testing: an app and its tests in one file. The tests call the app in process: no port, no
//! thread, no waiting.
//!
//! ```sh
//! cargo test -p testing
//! ```

use filoplume::prelude::*;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

/// A function makes the app, so that `main` and the tests have the same one.
fn app() -> App {
    App::new()
        .get("/", || "Hello!")
        .get("/square/{number}", square)
        .post("/shout", |text: String| text.to_uppercase())
}

fn square(Path(number): Path<i64>) -> Result<String> {
    let squared = number.checked_mul(number);
    squared
        .map(|number| number.to_string())
        .ok_or_else(|| Error::unprocessable("that is too large"))
}

#[cfg(test)]
mod tests {
    use super::app;

    #[test]
    fn says_hello() {
        app().test().get("/").send().assert_status(200).assert_text("Hello!");
    }

    #[test]
    fn squares_numbers() {
        let client = app().test();
        client.get("/square/12").send().assert_text("144");
        client.get("/square/-3").send().assert_text("9");
    }

    #[test]
    fn refuses_text_and_numbers_that_are_too_large() {
        let client = app().test();
        client.get("/square/twelve").send().assert_status(400);
        client.get("/square/9223372036854775807").send().assert_status(422);
    }

    #[test]
    fn shouts() {
        app().test().post("/shout").body("hey").send().assert_text("HEY");
    }
}
