//! What extractors take from a request, and the check that nothing is taken twice.

/// What an extractor takes from the request.
///
/// The content cannot be taken twice, and nothing is left after a parameter that takes the whole
/// request. Handlers that violate this do not compile. The check runs when code is generated:
/// `cargo build`, `test` and `run` report it, `cargo check` does not. The last note of the message
/// has the line where the route is added.
///
/// ```compile_fail,E0080
/// use filoplume::prelude::*;
///
/// // error: two parameters of this handler take the content of the request: take it once, ...
/// App::new().post("/", |text: String, Json(list): Json<Vec<String>>| format!("{text} {list:?}"));
/// ```
///
/// ```compile_fail,E0080
/// use filoplume::prelude::*;
///
/// // error: a handler must take the whole `Request` as its last parameter
/// App::new().get("/{id}", |request: Request, Path(id): Path<u64>| {
///     format!("{} {id}", request.path())
/// });
/// ```
///
/// This compiles:
///
/// ```
/// use filoplume::prelude::*;
///
/// App::new()
///     .post(
///         "/",
///         |Query(text): Query<Vec<(String, String)>>, Json(list): Json<Vec<String>>| {
///             format!("{text:?} {list:?}")
///         },
///     )
///     .get("/{id}", |Path(id): Path<u64>, request: Request| {
///         format!("{} {id}", request.path())
///     });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Takes {
    /// Nothing: it only reads.
    #[default]
    Nothing,
    /// The whole content, in memory.
    Content,
    /// The content, as a reader. The handler is called before long content has arrived.
    Stream,
    /// The whole request, with its content.
    Request,
}

/// Fails to compile if something is taken twice. It is for `const` blocks.
pub(crate) const fn check_takes(parameters: &[Takes]) {
    let mut content_is_taken = false;
    let mut request_is_taken = false;
    let mut index = 0;
    while index < parameters.len() {
        assert!(!request_is_taken, "a handler must take the whole `Request` as its last parameter");
        match parameters[index] {
            Takes::Nothing => {}
            Takes::Content | Takes::Stream => {
                assert!(
                    !content_is_taken,
                    "two parameters of this handler take the content of the request: take it \
                     once, as `String`, `Bytes`, `Json<T>` or `Form<T>`, and derive the other \
                     value from it"
                );
                content_is_taken = true;
            }
            Takes::Request => request_is_taken = true,
        }
        index += 1;
    }
}

/// Returns what a handler with these parameters takes.
pub(crate) const fn most(parameters: &[Takes]) -> Takes {
    let mut most = Takes::Nothing;
    let mut index = 0;
    while index < parameters.len() {
        most = match (most, parameters[index]) {
            (most, Takes::Nothing) => most,
            (Takes::Stream, _) | (_, Takes::Stream) => Takes::Stream,
            (_, other) => other,
        };
        index += 1;
    }
    most
}
