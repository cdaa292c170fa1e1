//! Copies of the conditions of a request. They are used when its response is created.

use filoplume_runtime::{Headers, Method, Request};

/// The fields that select a part or a version of the content.
const NAMES: [&str; 6] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"];

/// The conditions of a request: its method, its precondition headers and its range.
///
/// The framework keeps a copy for handlers that return a [`FileResponse`](crate::FileResponse).
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
    /// Returns the conditions of a request.
    pub fn of(request: &Request) -> Self {
        let mut headers = Headers::new();
        for name in NAMES {
            for value in request.headers().get_all(name) {
                // The value was a valid header value before.
                let _ = headers.append(name, value);
            }
        }
        Self { method: request.method().clone(), headers }
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the headers that are preconditions or a range.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }
}
