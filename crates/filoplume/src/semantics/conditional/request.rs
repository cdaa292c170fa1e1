//! The conditions of a request that is gone when its response is made.

use filoplume_runtime::{Headers, Method, Request};

/// The fields that say which part of a content is wanted, and of which version of it.
const NAMES: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];

/// Which part of a content a request wants, and of which version: its method, its conditions and
/// its range.
///
/// The framework keeps them for handlers that return a [`FileResponse`](crate::FileResponse).
///
/// ```
/// use filoplume::conditional::RequestConditions;
/// use filoplume::prelude::*;
///
/// fn range(request: Request) -> String {
///     format!("{:?}", RequestConditions::of(&request).headers().get_str("range"))
/// }
///
/// let client = App::new().get("/", range).test();
/// client.get("/").header("range", "bytes=0-9").send().assert_text("Some(\"bytes=0-9\")");
/// ```
#[derive(Clone, Debug)]
pub struct RequestConditions {
    method: Method,
    headers: Headers,
}

impl RequestConditions {
    /// Returns those of a request.
    pub fn of(request: &Request) -> Self {
        let mut headers = Headers::new();
        for name in NAMES {
            for value in request.headers().get_all(name) {
                // It was one before.
                let _ = headers.append(name, value);
            }
        }
        Self { method: request.method().clone(), headers }
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the headers that are conditions or a range, and no others.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }
}
