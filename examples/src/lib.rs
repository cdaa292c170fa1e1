//! What the examples of Filoplume have in common: see the files beside `src`, one a task.

/// Returns the address in the first argument, or `127.0.0.1:5000`.
pub fn address() -> String {
    std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:5000".to_owned())
}
