//! What extractors take away from a request, and that it is taken once.

/// What an extractor takes away from the request.
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
        assert!(!request_is_taken, "a handler that takes the whole `Request` takes it as its last parameter");
        match parameters[index] {
            Takes::Nothing => {}
            Takes::Content | Takes::Stream => {
                assert!(
                    !content_is_taken,
                    "two parameters of this handler take the content of the request: only one can have it"
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
