//! Errors: what the client sees, what the log contains, and how an app decides about it.
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
        // Maps an error type of another crate to a response, for all handlers.
        .map_error(|error: &ParseIntError| Error::unprocessable(format!("not a number: {error}")))
        // Shows errors with their causes in the browser. For development only.
        .development(std::env::var_os("DEVELOPMENT").is_some())
}

/// `Error` has a status and a text for the client.
fn order(Path(id): Path<u32>) -> Result<String> {
    match id {
        0..=9 => Ok(format!("order {id}")),
        _ => Err(Error::not_found(format!("there is no order {id}"))),
    }
}

/// An error type of the app, which defines its own response.
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

/// `?` on an error of another crate that `map_error` maps.
fn double(Path(number): Path<String>) -> Result<String> {
    Ok((number.parse::<i64>()? * 2).to_string())
}

/// `?` on an unmapped error: a plain 500, and the text in the log.
fn broken() -> Result<String> {
    Ok(std::fs::read_to_string("/no/such/file")?)
}
