//! What is kept of sessions, by the clock.

use super::*;
use crate::session::MemoryStore;

const LIFETIME: Lifetime =
    Lifetime { idle: Duration::from_secs(160), absolute: Duration::from_secs(1000) };

fn manager(storage: Storage) -> SessionManager {
    SessionManager {
        name: "session".to_owned(),
        storage,
        key: Key::generate(),
        old_keys: Vec::new(),
        lifetime: LIFETIME,
        generations: None,
    }
}

fn in_memory() -> (SessionManager, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    (manager(Storage::Store(Arc::<MemoryStore>::clone(&store))), store)
}

/// Begins a session with `n` set to 1, and returns its cookie.
fn begin(manager: &SessionManager) -> String {
    let mut live = manager.load(None, 0).expect("memory does not fail");
    live.change("n".to_owned(), Some(1.into()));
    match manager.save(live, 0).expect("memory does not fail") {
        CookieAction::Set(value, _) => value,
        other => panic!("{other:?}"),
    }
}

fn number(manager: &SessionManager, cookie: &str, name: &str, now: u64) -> Option<i64> {
    let live = manager.load(Some(cookie), now).expect("memory does not fail");
    live.record.values.get(name).and_then(Value::as_i64)
}

#[test]
fn a_session_is_kept_until_it_is_idle() {
    for manager in [manager(Storage::Cookie), in_memory().0] {
        let cookie = begin(&manager);
        assert_eq!(number(&manager, &cookie, "n", 159), Some(1));
        assert_eq!(number(&manager, &cookie, "n", 160), None);
    }
}

#[test]
fn use_extends_a_session_up_to_its_absolute_end() {
    for manager in [manager(Storage::Cookie), in_memory().0] {
        let mut cookie = begin(&manager);
        let mut now = 0;
        while now < 900 {
            now += 100;
            let live = manager.load(Some(&cookie), now).expect("memory does not fail");
            match manager.save(live, now).expect("memory does not fail") {
                CookieAction::Set(value, keep_for) => {
                    assert_eq!(keep_for, Duration::from_secs((1000 - now).min(160)));
                    cookie = value;
                }
                other => panic!("{other:?} at {now}"),
            }
        }
        assert_eq!(number(&manager, &cookie, "n", 999), Some(1));
        assert_eq!(number(&manager, &cookie, "n", 1000), None);
    }
}

#[test]
fn reading_a_session_does_not_write_it() {
    let (manager, _) = in_memory();
    let cookie = begin(&manager);
    let live = manager.load(Some(&cookie), 9).expect("memory does not fail");
    assert_eq!(manager.save(live, 9).expect("memory does not fail"), CookieAction::Unchanged);
    let mut live = manager.load(Some(&cookie), 9).expect("memory does not fail");
    live.change("n".to_owned(), Some(1.into()));
    assert!(!live.is_changed(), "the value is the same");
}

#[test]
fn concurrent_changes_are_merged_by_name() {
    let (manager, _) = in_memory();
    let cookie = begin(&manager);
    let mut first = manager.load(Some(&cookie), 1).expect("memory does not fail");
    let mut second = manager.load(Some(&cookie), 1).expect("memory does not fail");
    first.change("a".to_owned(), Some(1.into()));
    first.change("n".to_owned(), None);
    second.change("b".to_owned(), Some(2.into()));
    manager.save(first, 1).expect("memory does not fail");
    manager.save(second, 1).expect("memory does not fail");
    let of = |name| number(&manager, &cookie, name, 2);
    assert_eq!((of("a"), of("b"), of("n")), (Some(1), Some(2), None));
}

#[test]
fn a_session_that_one_request_ended_is_not_restored_by_another() {
    for end in [LoadedSession::destroy, LoadedSession::renew] {
        let (manager, store) = in_memory();
        let cookie = begin(&manager);
        let mut slow = manager.load(Some(&cookie), 1).expect("memory does not fail");
        let mut ends = manager.load(Some(&cookie), 1).expect("memory does not fail");
        end(&mut ends);
        manager.save(ends, 1).expect("memory does not fail");
        let kept = store.len();
        slow.change("late".to_owned(), Some(1.into()));
        assert_eq!(
            manager.save(slow, 1).expect("memory does not fail"),
            CookieAction::Unchanged
        );
        assert_eq!(number(&manager, &cookie, "n", 1), None);
        assert_eq!(store.len(), kept);
    }
}

#[test]
fn the_id_in_the_store_differs_from_the_one_in_the_browser() {
    let (manager, store) = in_memory();
    let cookie = begin(&manager);
    let token =
        manager.key.verify(&manager.purpose(TOKEN_PURPOSE), &cookie).expect("it is signed");
    assert_eq!(store.load(token).expect("memory does not fail"), None);
    assert!(
        store
            .load(&manager.key.mac(ID_PURPOSE, token))
            .expect("memory does not fail")
            .is_some()
    );
    // 256 bits in base64.
    assert_eq!(token.len(), 43);
}
