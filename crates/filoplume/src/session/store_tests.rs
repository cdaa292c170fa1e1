//! Tests that the stores share: the eviction order, with few sessions of four bytes.

use std::time::Duration;

use super::store::{SessionOwner, SessionStore};

pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn begin(store: &impl SessionStore, id: &str) {
    store.insert(id, b"1234", HOUR).expect("the store works");
}

/// Begins a session as a login does.
pub(super) fn log_in(store: &impl SessionStore, id: &str) {
    store.insert_for(SessionOwner::User, id, b"1234", HOUR).expect("the store works");
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

/// The attack: for each session in the store there are many that are begun and presented.
pub(super) fn keeps_logins_before_all_others<S: SessionStore>(store: &S, room: usize) {
    // The user does not even come back.
    log_in(store, "away");
    log_in(store, "later a login");
    begin(store, "upgraded");
    assert!(
        store
            .replace_for(SessionOwner::User, "upgraded", b"1234", b"4321", HOUR)
            .expect("the store works")
    );
    begin(store, "visitor");
    assert!(present(store, "visitor"));
    for number in 0..5 * room {
        let id = format!("flood-{number}");
        begin(store, &id);
        assert!(present(store, &id));
    }
    assert!(!present(store, "visitor"), "a visitor competes with the flood");
    assert!(present(store, "away") && present(store, "later a login"));
    assert!(present(store, "upgraded"));
    // A session without its login is one of a visitor again.
    assert!(store.replace("away", b"1234", b"4321", HOUR).expect("the store works"));
    for number in 0..5 * room {
        let id = format!("more-{number}");
        begin(store, &id);
        assert!(present(store, &id));
    }
    assert!(!present(store, "away") && present(store, "upgraded"));
}

/// With five sessions. `ids` returns the IDs from `a` to `h` that are in the store.
pub(super) fn keeps_the_latest_logins_within_the_share<S: SessionStore>(
    store: &S,
    ids: impl Fn(&S) -> Vec<String>,
) {
    for id in ["a", "b", "c", "d", "e"] {
        log_in(store, id);
    }
    // The fifth one exceeds the share, so `a` is on probation.
    begin(store, "f");
    assert_eq!(ids(store), ["b", "c", "d", "e", "f"]);
    // `b` takes its place, and is a login again when it is used.
    log_in(store, "g");
    assert_eq!(ids(store), ["b", "c", "d", "e", "g"]);
    assert!(present(store, "b"));
    begin(store, "h");
    assert_eq!(ids(store), ["b", "d", "e", "g", "h"], "`c` returned to probation for it");
}
