//! What extractors take away from a request, and that it is taken once.

/// What an extractor takes away from the request.
///
/// A content cannot be taken twice, and nothing is left behind a parameter that takes the whole
/// request. Handlers that would do that do not compile. It is found when code is generated, by
/// `cargo build`, `test` and `run`: `cargo check` does not evaluate it. The last note of the
/// message has the line where the route is added.
///
/// ```compile_fail,E0080
/// use filoplume::prelude::*;
///
/// // error: two parameters of this handler take the content of the request: only one can have it
/// App::new().post("/", |text: String, Json(list): Json<Vec<String>>| format!("{text} {list:?}"));
/// ```
///
/// ```compile_fail,E0080
/// use filoplume::prelude::*;
///
/// // error: a handler that takes the whole `Request` takes it as its last parameter
/// App::new().get("/{id}", |request: Request, Path(id): Path<u64>| format!("{} {id}", request.path()));
/// ```
///
/// So they do:
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
    /// Nothing: it looks.
    #[default]
    Nothing,
    /// The content, all of it, in memory.
    Content,
    /// The content, as a reader: the handler of a long one is called before it has arrived.
    Stream,
    /// The whole request, with its content.
    Request,
}

/// Fails to compile if something is taken twice. For a `const` block.
pub(crate) const fn check_takes(parameters: &[Takes]) {
    let mut content_is_taken = false;
    let mut request_is_taken = false;
    let mut index = 0;
    while index < parameters.len() {
        assert!(
            !request_is_taken,
            "a handler that takes the whole `Request` takes it as its last parameter"
        );
        match parameters[index] {
            Takes::Nothing => {}
            Takes::Content | Takes::Stream => {
                assert!(
                    !content_is_taken,
                    "two parameters of this handler take the content of the request: only one can \
                     have it, as `String`, `Bytes`, `Json<T>` or `Form<T>`, and the handler reads \
                     the rest from that one"
                );
                content_is_taken = true;
            }
            Takes::Request => request_is_taken = true,
        }
        index += 1;
    }
}

/// What a handler with these parameters takes.
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
