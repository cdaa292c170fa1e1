//! Tests that the stores share: the eviction order, with five sessions of four bytes.

use std::time::Duration;

use super::store::SessionStore;

pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn begin(store: &impl SessionStore, id: &str) {
    store.insert(id, b"1234", HOUR).expect("the store works");
}

/// Presents a session as a client does, and returns whether it exists.
pub(super) fn present(store: &impl SessionStore, id: &str) -> bool {
    store.load(id).expect("the store works").is_some()
}

/// `ids` returns the IDs from `a` to `h` that are in the store, without counting as use.
pub(super) fn evicts_sessions_that_were_never_presented_again_first<S: SessionStore>(
    store: &S,
    ids: impl Fn(&S) -> Vec<String>,
) {
    for id in ["a", "b", "c", "d", "e"] {
        begin(store, id);
    }
    assert!(present(store, "a") && present(store, "c"));
    begin(store, "f");
    assert_eq!(ids(store), ["a", "c", "d", "e", "f"], "the oldest one on probation is evicted");
    begin(store, "g");
    begin(store, "h");
    assert_eq!(ids(store), ["a", "c", "f", "g", "h"]);
}

/// `ids` returns the IDs from `a` to `h` that are in the store, without counting as use.
pub(super) fn reserves_four_fifths_for_sessions_in_use<S: SessionStore>(
    store: &S,
    ids: impl Fn(&S) -> Vec<String>,
) {
    for id in ["a", "b", "c", "d", "e"] {
        begin(store, id);
        assert!(present(store, id));
    }
    // The fifth one exceeds the share, and `a` is the least recently used.
    begin(store, "f");
    assert_eq!(ids(store), ["b", "c", "d", "e", "f"]);
}
