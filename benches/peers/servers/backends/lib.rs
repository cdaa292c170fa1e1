//! The blocking calls that the three `backends_` servers make, with their pools, so that only the
//! frameworks differ.
//!
//! Each pool opens all its connections on its first use, and fills its backend with the rows for
//! later requests. A server starts without any of the backends.

mod http;
mod pool;
mod postgres_row;
mod redis_value;
mod sqlite_row;

use std::env;

use common::value;

/// Any error of a client library. The servers answer it with 500.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A blocking call, given the query of the request.
pub type Call = fn(&str) -> Result<String, Error>;

/// The paths of every server, and what they call.
pub const ROUTES: &[(&str, Call)] = &[
    ("/redis_get", |query| redis_value::get(key(query)?)),
    ("/redis_set", |query| redis_value::set(key(query)?)),
    ("/postgres", |query| postgres_row::read(key(query)?)),
    ("/sqlite_read", |query| sqlite_row::read(key(query)?)),
    ("/sqlite_write", |query| sqlite_row::write(key(query)?)),
    ("/http", |_| http::get()),
];

/// How many rows each backend has: keys are below this.
const ROWS: u32 = 10_000;

/// The key in `key=4711`.
fn key(query: &str) -> Result<u32, Error> {
    let key = value(query, "key=").and_then(|key| u32::try_from(key).ok());
    key.filter(|key| *key < ROWS).ok_or_else(|| format!("the query has no key below {ROWS}").into())
}

/// The value of a key in every backend.
fn value_of(key: u32) -> String {
    format!("value {key}")
}

/// The answer to a write.
fn written(key: u32) -> String {
    format!("written {key}")
}

/// The address or path of a backend, from the environment.
fn place(variable: &str) -> Result<String, Error> {
    env::var(variable).map_err(|_| format!("{variable} is not set").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_of_the_rows() {
        assert_eq!(key("key=4711").unwrap(), 4711);
        for query in ["", "key=", "key=x", "key=10000", "key=-1"] {
            assert_eq!(key(query).unwrap_err().to_string(), "the query has no key below 10000");
        }
    }
}
