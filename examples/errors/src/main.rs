//! Errors: what a client is told, what the log is told, and how an app says which is which.
//!
//! ```sh
//! curl http://127.0.0.1:5000/orders/7
//! curl http://127.0.0.1:5000/divide/1/0
//! curl -H 'Accept: text/html' http://127.0.0.1:5000/broken
//! ```

use std::num::ParseIntError;

use filoplume::prelude::*;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    App::new()
        .get("/", || "Try /orders/7, /orders/99, /divide/1/0, /double/x, /broken and /panic")
        .get("/orders/{id}", order)
        .get("/divide/{a}/{b}", divide)
        .get("/double/{number}", double)
        .get("/broken", broken)
        .get("/panic", || -> &'static str { panic!("a handler's mistake") })
        // How an error of another crate is answered, wherever it comes from.
        .map_error(|error: &ParseIntError| Error::unprocessable(format!("not a number: {error}")))
        // Errors with their causes in the browser: for development only.
        .development(std::env::var_os("DEVELOPMENT").is_some())
}

/// `Error` has a status and a text for the client.
fn order(Path(id): Path<u32>) -> Result<String> {
    match id {
        0..=9 => Ok(format!("order {id}")),
        _ => Err(Error::not_found(format!("there is no order {id}"))),
    }
}

/// An error type of the app says itself how it is answered.
enum DivisionError {
    ByZero,
    TooLarge,
}

impl IntoResponse for DivisionError {
    fn into_response(self) -> Result<Response> {
        Err(match self {
            Self::ByZero => {
                Error::bad_request("nothing can be divided by zero").with_field("b", "is zero")
            }
            Self::TooLarge => Error::unprocessable("the result does not fit"),
        })
    }
}

fn divide(Path((a, b)): Path<(i64, i64)>) -> Result<String, DivisionError> {
    if b == 0 {
        return Err(DivisionError::ByZero);
    }
    a.checked_div(b).map(|result| result.to_string()).ok_or(DivisionError::TooLarge)
}

/// `?` on an error of another crate: `map_error` knows this one.
fn double(Path(number): Path<String>) -> Result<String> {
    Ok((number.parse::<i64>()? * 2).to_string())
}

/// And of this one it knows nothing: a plain 500, and the text in the log.
fn broken() -> Result<String> {
    Ok(std::fs::read_to_string("/no/such/file")?)
}
