//! Sessions that get a new ID while other requests use them.

use super::*;

/// A manager with a store and a session whose `n` is 1, and two requests that have loaded it.
fn loaded_twice() -> (SessionManager, Arc<MemoryStore>, String, [LoadedSession; 2]) {
    let (manager, store) = in_memory();
    let cookie = begin(&manager);
    let loaded = [(); 2].map(|()| manager.load(Some(&cookie), 1).unwrap());
    (manager, store, cookie, loaded)
}

fn value_of(action: CookieAction) -> String {
    match action {
        CookieAction::Set { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

/// Otherwise a request that began before a logout would undo it.
#[test]
fn a_new_id_does_not_restore_a_session_that_another_request_ended() {
    for (end, left) in [(LoadedSession::destroy as fn(&mut _), 0), (LoadedSession::renew, 1)] {
        let (manager, store, _, [mut slow, mut ends]) = loaded_twice();
        end(&mut ends);
        manager.save(ends, 1).unwrap();
        assert_eq!(store.len(), left);
        slow.change("late".to_owned(), Some(1.into()));
        slow.renew();
        assert_eq!(manager.save(slow, 1).unwrap(), CookieAction::Unchanged);
        assert_eq!(store.len(), left);
    }
}

#[test]
fn a_new_id_keeps_what_other_requests_have_saved() {
    let (manager, store, cookie, [mut slow, mut other]) = loaded_twice();
    other.change("n".to_owned(), None);
    other.change("other".to_owned(), Some(2.into()));
    manager.save(other, 1).unwrap();
    slow.change("own".to_owned(), Some(3.into()));
    slow.renew();
    let renewed = value_of(manager.save(slow, 1).unwrap());
    let of = |name| number(&manager, &renewed, name, 2);
    assert_eq!((of("n"), of("other"), of("own")), (None, Some(2), Some(3)));
    assert_eq!(number(&manager, &cookie, "other", 2), None);
    assert_eq!(store.len(), 1);
}

/// The user has shown a password, so the login counts, but not what the session had before.
#[test]
fn a_login_into_a_session_that_another_request_ended_begins_a_new_one() {
    for end in [LoadedSession::destroy, LoadedSession::renew] {
        let (manager, store, _, [mut slow, mut ends]) = loaded_twice();
        end(&mut ends);
        manager.save(ends, 1).unwrap();
        let others = store.len();
        slow.log_in("ada", 7, 1);
        slow.change("theme".to_owned(), Some(2.into()));
        let cookie = value_of(manager.save(slow, 1).unwrap());
        let live = manager.load(Some(&cookie), 2).unwrap();
        let names: Vec<_> = live.record.values.keys().collect();
        assert_eq!(names, [SUBJECT, "theme"]);
        assert_eq!(store.len(), others + 1);
    }
}

/// The values of the login are unchanged, and count nevertheless.
#[test]
fn a_second_login_of_the_same_user_outlives_a_logout_at_the_same_time() {
    let (manager, _) = in_memory();
    let (cookie, _) = save_after(&manager, &begin(&manager), 1, |live| live.log_in("ada", 7, 1));
    let [mut slow, mut ends] = [(); 2].map(|()| manager.load(Some(&cookie), 2).unwrap());
    ends.destroy();
    manager.save(ends, 2).unwrap();
    slow.log_in("ada", 7, 2);
    let cookie = value_of(manager.save(slow, 2).unwrap());
    let live = manager.load(Some(&cookie), 3).unwrap();
    assert_eq!(live.record.values.keys().collect::<Vec<_>>(), [SUBJECT]);
}

#[test]
fn another_user_gets_nothing_that_requests_of_the_first_save_meanwhile() {
    let (manager, store) = in_memory();
    let (cookie, _) = save_after(&manager, &begin(&manager), 1, |live| live.log_in("ada", 0, 1));
    let [mut login, mut other] = [(); 2].map(|()| manager.load(Some(&cookie), 2).unwrap());
    other.change("draft".to_owned(), Some(1.into()));
    manager.save(other, 2).unwrap();
    login.change("mine".to_owned(), Some(1.into()));
    login.log_in("bob", 0, 2);
    let cookie = value_of(manager.save(login, 2).unwrap());
    let live = manager.load(Some(&cookie), 3).unwrap();
    assert_eq!(live.record.values.keys().collect::<Vec<_>>(), [SUBJECT]);
    assert_eq!(store.len(), 1);
}

/// A copy of a cookie is valid until it expires, so a slow request may send it again.
#[test]
fn a_session_in_a_cookie_can_be_restored_by_a_slow_request() {
    let manager = manager(Storage::Cookie);
    let cookie = begin(&manager);
    let [mut slow, mut ends] = [(); 2].map(|()| manager.load(Some(&cookie), 1).unwrap());
    ends.destroy();
    assert_eq!(manager.save(ends, 1).unwrap(), CookieAction::Remove);
    slow.renew();
    let restored = value_of(manager.save(slow, 1).unwrap());
    assert_eq!(number(&manager, &restored, "n", 2), Some(1));
}
