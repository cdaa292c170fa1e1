//! Sessions over time, and of several requests at once.

mod renewals;

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
        mismatches: Arc::default(),
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
        CookieAction::Set { value, .. } => value,
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
                CookieAction::Set { value, keep_for, .. } => {
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
        assert_eq!(manager.save(slow, 1).expect("memory does not fail"), CookieAction::Unchanged);
        assert_eq!(number(&manager, &cookie, "n", 1), None);
        assert_eq!(store.len(), kept);
    }
}

#[test]
fn the_id_in_the_store_differs_from_the_one_in_the_browser() {
    let (manager, store) = in_memory();
    let cookie = begin(&manager);
    let token = manager.key.verify(&manager.purpose(TOKEN_PURPOSE), &cookie).expect("it is signed");
    assert_eq!(store.load(token).expect("memory does not fail"), None);
    assert!(
        store.load(&manager.key.mac(ID_PURPOSE, token)).expect("memory does not fail").is_some()
    );
    // 256 bits in base64.
    assert_eq!(token.len(), 43);
}

/// Saves the session of a cookie at this time after a change, and returns the cookie from then on,
/// with the time for which a browser that is closed keeps it.
fn save_after(
    manager: &SessionManager,
    cookie: &str,
    now: u64,
    change: impl FnOnce(&mut LoadedSession),
) -> (String, Option<u64>) {
    let mut live = manager.load(Some(cookie), now).expect("memory does not fail");
    change(&mut live);
    match manager.save(live, now).expect("memory does not fail") {
        CookieAction::Set { value, keep_for, is_remembered } => {
            (value, is_remembered.then_some(keep_for.as_secs()))
        }
        other => panic!("{other:?} at {now}"),
    }
}

#[test]
fn a_remembered_session_needs_no_use_and_ends_when_it_was_said() {
    for manager in [manager(Storage::Cookie), in_memory().0] {
        let cookie = begin(&manager);
        let remember = |live: &mut LoadedSession| live.remember(Duration::from_secs(900), 150);
        let (cookie, kept) = save_after(&manager, &cookie, 150, remember);
        assert_eq!(kept, Some(900), "it counts from the login on");
        assert_eq!(number(&manager, &cookie, "n", 1049), Some(1), "it is beyond 0 + 1000, too");
        assert_eq!(number(&manager, &cookie, "n", 1050), None);
        // A new ID and a use do not change that.
        let (cookie, kept) = save_after(&manager, &cookie, 650, LoadedSession::renew);
        assert_eq!(kept, Some(400));
        let (cookie, kept) = save_after(&manager, &cookie, 1000, |_| ());
        assert_eq!(kept, Some(50));
        assert_eq!(number(&manager, &cookie, "n", 1050), None);
        // Remembering it for the same time again counts as a change.
        let extend = |live: &mut LoadedSession| live.remember(Duration::from_secs(900), 1001);
        let (cookie, kept) = save_after(&manager, &cookie, 1001, extend);
        assert_eq!(kept, Some(900));
        assert_eq!(number(&manager, &cookie, "n", 1900), Some(1));
    }
}

#[test]
fn no_session_is_remembered_beyond_the_absolute_timeout() {
    for mut manager in [manager(Storage::Cookie), in_memory().0] {
        let cookie = begin(&manager);
        let remember = |live: &mut LoadedSession| live.remember(Duration::from_secs(900), 1);
        let (cookie, _) = save_after(&manager, &cookie, 1, remember);
        // The timeout was made shorter after the login.
        manager.lifetime.absolute = Duration::from_secs(300);
        assert_eq!(number(&manager, &cookie, "n", 300), Some(1));
        assert_eq!(number(&manager, &cookie, "n", 301), None);
    }
}

#[test]
fn the_absolute_timeout_of_a_login_counts_from_the_login() {
    for mut manager in [manager(Storage::Cookie), in_memory().0] {
        (manager.lifetime.absolute, manager.lifetime.idle) =
            (Duration::from_secs(300), Duration::from_secs(1000));
        let log_in = |now| move |live: &mut LoadedSession| live.log_in("ada", 0, now);
        let (cookie, _) = save_after(&manager, &begin(&manager), 200, log_in(200));
        // The same user again changes nothing: the session could be extended without end.
        let (cookie, _) = save_after(&manager, &cookie, 400, log_in(400));
        assert_eq!(number(&manager, &cookie, "n", 499), Some(1));
        assert_eq!(number(&manager, &cookie, "n", 500), None);
    }
}

#[test]
fn a_lifetime_belongs_to_one_login() {
    for manager in [manager(Storage::Cookie), in_memory().0] {
        let (cookie, kept) = save_after(&manager, &begin(&manager), 1, |live| {
            // The order does not matter within a request.
            live.remember(Duration::from_secs(900), 1);
            live.log_in("ada", 0, 1);
        });
        assert_eq!(kept, Some(900));
        let (cookie, kept) = save_after(&manager, &cookie, 2, |live| live.log_in("ada", 0, 1));
        assert_eq!(kept, Some(899), "she changed her password");
        let (other, kept) = save_after(&manager, &cookie, 3, |live| {
            live.log_in("bob", 0, 3);
            live.change("n".to_owned(), Some(1.into()));
        });
        assert_eq!(kept, None);
        assert_eq!(number(&manager, &other, "n", 162), Some(1));
        assert_eq!(number(&manager, &other, "n", 163), None);
    }
}

#[test]
fn a_session_that_is_cleared_is_remembered_no_longer() {
    for manager in [manager(Storage::Cookie), in_memory().0] {
        let remember = |live: &mut LoadedSession| live.remember(Duration::from_secs(900), 1);
        let (cookie, _) = save_after(&manager, &begin(&manager), 1, remember);
        let (cookie, kept) = save_after(&manager, &cookie, 500, |live| {
            live.clear();
            live.change("n".to_owned(), Some(2.into()));
        });
        assert_eq!(kept, None);
        assert_eq!(number(&manager, &cookie, "n", 501), Some(2));
        assert_eq!(number(&manager, &cookie, "n", 660), None);
    }
}

#[test]
fn the_later_use_counts_if_two_requests_save_a_session() {
    let (manager, _) = in_memory();
    let cookie = begin(&manager);
    let mut earlier = manager.load(Some(&cookie), 50).expect("memory does not fail");
    let mut later = manager.load(Some(&cookie), 100).expect("memory does not fail");
    earlier.change("a".to_owned(), Some(1.into()));
    later.change("b".to_owned(), Some(2.into()));
    manager.save(earlier, 50).expect("memory does not fail");
    manager.save(later, 100).expect("memory does not fail");
    assert_eq!(number(&manager, &cookie, "a", 259), Some(1));
    assert_eq!(number(&manager, &cookie, "b", 259), Some(2));
    assert_eq!(number(&manager, &cookie, "b", 260), None);
    // The other way round.
    let cookie = begin(&manager);
    let mut earlier = manager.load(Some(&cookie), 50).expect("memory does not fail");
    let later = manager.load(Some(&cookie), 100).expect("memory does not fail");
    earlier.change("a".to_owned(), Some(1.into()));
    manager.save(later, 100).expect("memory does not fail");
    manager.save(earlier, 50).expect("memory does not fail");
    assert_eq!(number(&manager, &cookie, "a", 259), Some(1));
}

/// Otherwise the session would end with the lifetime that it had before.
#[test]
fn a_request_that_saves_later_does_not_undo_that_another_has_remembered_the_session() {
    let (manager, _) = in_memory();
    let cookie = begin(&manager);
    let mut late = manager.load(Some(&cookie), 100).expect("memory does not fail");
    let (cookie, kept) =
        save_after(&manager, &cookie, 100, |live| live.remember(Duration::from_secs(300), 100));
    assert_eq!(kept, Some(300));
    late.change("n".to_owned(), Some(2.into()));
    manager.save(late, 101).expect("memory does not fail");
    assert_eq!(number(&manager, &cookie, "n", 399), Some(2));
    assert_eq!(number(&manager, &cookie, "n", 400), None);
}

/// The other way round: its lifetime counts from its own time, not from the creation.
#[test]
fn a_request_that_remembers_a_session_saves_later_than_another() {
    let (manager, _) = in_memory();
    let cookie = begin(&manager);
    let mut late = manager.load(Some(&cookie), 100).expect("memory does not fail");
    let mut early = manager.load(Some(&cookie), 100).expect("memory does not fail");
    early.change("n".to_owned(), Some(2.into()));
    manager.save(early, 100).expect("memory does not fail");
    late.remember(Duration::from_secs(300), 100);
    manager.save(late, 101).expect("memory does not fail");
    assert_eq!(number(&manager, &cookie, "n", 399), Some(2));
    assert_eq!(number(&manager, &cookie, "n", 400), None);
}

#[test]
fn a_session_in_a_cookie_ends_with_its_last_value() {
    let manager = manager(Storage::Cookie);
    let cookie = begin(&manager);
    let mut live = manager.load(Some(&cookie), 1).expect("there is no store");
    live.change("n".to_owned(), None);
    assert_eq!(manager.save(live, 1).expect("there is no store"), CookieAction::Remove);
}

#[test]
fn the_cookie_of_a_session_that_was_renewed_and_emptied_is_removed() {
    let (manager, store) = in_memory();
    let cookie = begin(&manager);
    let mut live = manager.load(Some(&cookie), 1).expect("memory does not fail");
    live.renew();
    live.clear();
    assert_eq!(manager.save(live, 1).expect("memory does not fail"), CookieAction::Remove);
    assert!(store.is_empty());
}

/// Another version of the app may have stored logins in another form, and revoked them since.
#[test]
fn a_login_that_cannot_be_read_is_not_trusted() {
    let mut manager = manager(Storage::Cookie);
    manager.generations = Some(Arc::new(|_: &str| Ok(0)));
    for (login, is_kept) in [
        (serde_json::json!(["ada", 0]), true),
        (serde_json::json!("ada"), false),
        (serde_json::json!(["ada", -1]), false),
        (serde_json::json!(["ada"]), false),
    ] {
        let mut live = manager.load(None, 0).expect("there is no store");
        live.change(SUBJECT.to_owned(), Some(login.clone()));
        let saved = manager.save(live, 0).expect("there is no store");
        let CookieAction::Set { value, .. } = saved else { panic!("{saved:?}") };
        let live = manager.load(Some(&value), 1).expect("there is no store");
        assert_eq!(live.record.values.contains_key(SUBJECT), is_kept, "{login}");
    }
}

/// By then the browser has the cookie of another session, or none.
#[test]
fn a_session_that_has_ended_meanwhile_is_not_given_to_the_browser_again() {
    let (manager, store) = in_memory();
    let cookie = begin(&manager);
    let slow = manager.load(Some(&cookie), 100).expect("memory does not fail");
    let mut ends = manager.load(Some(&cookie), 100).expect("memory does not fail");
    ends.destroy();
    assert_eq!(manager.save(ends, 100).expect("memory does not fail"), CookieAction::Remove);
    // If the session still existed, this use would extend the cookie.
    assert_eq!(manager.save(slow, 100).expect("memory does not fail"), CookieAction::Unchanged);
    assert!(store.is_empty());
}

#[test]
fn use_extends_a_session_that_was_signed_with_an_old_key() {
    let (mut manager, _) = in_memory();
    let mut cookie = begin(&manager);
    manager.old_keys.push(std::mem::replace(&mut manager.key, Key::generate()));
    for now in [100, 200, 300] {
        let live = manager.load(Some(&cookie), now).expect("memory does not fail");
        match manager.save(live, now).expect("memory does not fail") {
            CookieAction::Set { value, .. } => cookie = value,
            other => panic!("{other:?} at {now}"),
        }
    }
    assert_eq!(number(&manager, &cookie, "n", 300), Some(1));
}

/// What `run` logs.
fn logged(run: impl FnOnce()) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = log.0.lock().clone();
    String::from_utf8(text).unwrap()
}

#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Two instances with different keys seem to log their users out at random.
#[test]
fn a_cookie_of_another_key_is_logged_and_what_is_no_cookie_is_not() {
    for storage in [Storage::Cookie, in_memory().0.storage] {
        let (first, second) = (manager(storage.clone()), manager(storage));
        let cookie = begin(&first);
        let log = logged(|| assert_eq!(number(&second, &cookie, "n", 1), None));
        assert!(log.contains("several instances need the same key"), "{log}");
        assert!(!log.contains(&cookie), "{log}");
        let own = logged(|| assert_eq!(number(&first, &cookie, "n", 1), Some(1)));
        let garbage = logged(|| {
            for cookie in ["", "admin", "' or 1=1", &"<script>".repeat(20)] {
                assert_eq!(number(&second, cookie, "n", 1), None);
            }
        });
        assert!(own.is_empty() && garbage.is_empty(), "{own}{garbage}");
        let flood = logged(|| (0..1000).for_each(|_| _ = number(&second, &cookie, "n", 1)));
        assert!(flood.lines().count() < 100, "{flood}");
    }
}

#[test]
fn a_session_of_the_future_is_logged() {
    let (manager, _) = in_memory();
    let mut live = manager.load(None, 100).unwrap();
    live.change("n".to_owned(), Some(1.into()));
    let CookieAction::Set { value: cookie, .. } = manager.save(live, 100).unwrap() else {
        panic!("a session begins with a cookie")
    };
    for (now, is_logged) in [(100, false), (95, false), (40, true)] {
        let log = logged(|| assert_eq!(number(&manager, &cookie, "n", now), Some(1)));
        assert_eq!(log.contains("seconds=60"), is_logged, "{now}: {log}");
    }
}
