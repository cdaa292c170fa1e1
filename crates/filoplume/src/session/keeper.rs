//! How a session comes from where it is kept, and goes back there.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::form_secret::{FormCookie, FormSecret};
use super::record::{Changes, Lifetime, Record};
use super::{CSRF_SECRET, Generations, SUBJECT, SessionStore};
use crate::core::error::{Error, Result};
use crate::key::Key;

/// Random bytes of an id: more than anyone can guess, or two sessions share.
const TOKEN_BYTES: usize = 32;

/// How often changes are put together with those of other requests of the session, before it is
/// given up.
const CONFLICTS_MAX: u32 = 16;

/// What a signature is for. An id that was made for one is not taken for another. For what the
/// browser has, the name of the cookie belongs to it: what was signed in one place of an app is
/// nothing in another.
const TOKEN_PURPOSE: &str = "session-token";
const ID_PURPOSE: &str = "session-id";
const CONTENT_PURPOSE: &str = "session-content";
const FORM_PURPOSE: &str = "session-form";

/// Loads and saves sessions.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// What these sessions are called, to tell them from others with the same key: the name of the
    /// cookie.
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) key: Key,
    /// What sessions may have been begun with before.
    pub(crate) old_keys: Vec<Key>,
    pub(crate) lifetime: Lifetime,
    pub(crate) generations: Option<Arc<dyn Generations>>,
}

/// Where sessions are kept.
#[derive(Clone)]
pub(crate) enum Place {
    /// In the cookie itself, encrypted.
    Cookie,
    Store(Arc<dyn SessionStore>),
}

/// A session that is being used.
pub(crate) struct Live {
    pub(crate) record: Record,
    /// What stands for it in the store; `None`: nothing yet.
    stored: Option<Stored>,
    changes: Changes,
    form_secret: FormSecret,
    /// Ids that end with this request.
    retired: Vec<String>,
    is_renewed: bool,
    is_destroyed: bool,
}

struct Stored {
    /// The one that the session was begun with: its id in the store depends on it.
    key: Key,
    token: String,
    id: String,
    bytes: Vec<u8>,
}

/// What the browser is told of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Nothing,
    /// Keep this value, for so long.
    Keep(String, Duration),
    Forget,
}

impl Live {
    fn new(now: u64) -> Self {
        Self {
            record: Record::new(now),
            stored: None,
            changes: Changes::new(),
            form_secret: FormSecret::None,
            retired: Vec::new(),
            is_renewed: false,
            is_destroyed: false,
        }
    }

    pub(crate) fn change(&mut self, name: String, value: Option<Value>) {
        if self.record.values.get(&name) == value.as_ref() {
            return;
        }
        match &value {
            Some(value) => self.record.values.insert(name.clone(), value.clone()),
            None => self.record.values.remove(&name),
        };
        self.changes.insert(name, value);
    }

    pub(crate) fn clear(&mut self) {
        for (name, _) in std::mem::take(&mut self.record.values) {
            self.changes.insert(name, None);
        }
    }

    pub(crate) fn renew(&mut self) {
        self.retired.extend(self.stored.take().map(|stored| stored.id));
        self.is_renewed = true;
        self.form_secret.retire();
        // Whoever had the id before may have had this too.
        self.change(CSRF_SECRET.to_owned(), None);
    }

    pub(crate) fn destroy(&mut self) {
        self.retired.extend(self.stored.take().map(|stored| stored.id));
        self.is_destroyed = true;
        self.form_secret.retire();
        self.record = Record::new(super::now());
        self.changes.clear();
    }

    /// Returns whether there is a session, or will be one if nothing is removed from it.
    fn has_session(&self) -> bool {
        self.stored.is_some() || !self.record.values.is_empty()
    }

    /// Returns the secret that forms are checked with: that of the session, or that of a browser
    /// without one. (The latter is never there if a session came with the request.)
    pub(crate) fn csrf_secret(&self) -> Option<&str> {
        let own = self.record.values.get(CSRF_SECRET).and_then(Value::as_str);
        own.or_else(|| self.form_secret.get())
    }

    /// Keeps a new secret for forms: in the session if there is one, otherwise in the browser.
    pub(crate) fn set_csrf_secret(&mut self, secret: String) {
        if self.has_session() {
            self.change(CSRF_SECRET.to_owned(), Some(secret.into()));
        } else {
            self.form_secret = FormSecret::Made(secret);
        }
    }

    fn is_changed(&self) -> bool {
        !self.changes.is_empty() || self.is_renewed
    }
}

impl Keeper {
    /// The session that a cookie stands for, or a new one. What the browser has made up is never
    /// taken over as an id.
    pub(crate) fn load(&self, presented: Option<&str>, now: u64) -> Result<Live> {
        let Some(presented) = presented else { return Ok(Live::new(now)) };
        let found = match &self.place {
            Place::Cookie => {
                let opened =
                    self.keys().find_map(|key| key.open(&self.purpose(CONTENT_PURPOSE), presented));
                opened
                    .and_then(|content| Record::decode(content.as_bytes()))
                    .map(|record| (record, None))
            }
            Place::Store(store) => {
                // The signature keeps what was made up away from the store.
                let purpose = self.purpose(TOKEN_PURPOSE);
                let verified =
                    self.keys().find_map(|key| Some((key, key.verify(&purpose, presented)?)));
                let Some((key, token)) = verified else { return Ok(Live::new(now)) };
                let id = key.mac(ID_PURPOSE, token);
                let bytes = store.load(&id)?;
                bytes.and_then(|bytes| {
                    let record = Record::decode(&bytes)?;
                    Some((
                        record,
                        Some(Stored { key: key.clone(), token: token.to_owned(), id, bytes }),
                    ))
                })
            }
        };
        let alive = found.filter(|(record, _)| record.keep_for(self.lifetime, now).is_some());
        let Some((record, stored)) = alive else { return Ok(Live::new(now)) };
        let is_void = self.is_void(&record)?;
        let mut live = Live { record, stored, ..Live::new(now) };
        if is_void {
            live.destroy();
        }
        Ok(live)
    }

    /// Returns whether the login of a session was revoked since.
    fn is_void(&self, record: &Record) -> Result<bool> {
        let (Some(generations), Some(login)) = (&self.generations, record.values.get(SUBJECT))
        else {
            return Ok(false);
        };
        // What is no login of this version may have been revoked: it is not trusted.
        let Ok((subject, generation)) = <(String, u64)>::deserialize(login) else {
            return Ok(true);
        };
        Ok(generation < generations.current(&subject)?)
    }

    /// Returns the current generation of a subject; 0 if the app has none.
    pub(crate) fn generation(&self, subject: &str) -> Result<u64> {
        self.generations.as_ref().map_or(Ok(0), |generations| generations.current(subject))
    }

    /// As [`load`](Self::load), with the secret for forms that a browser without a session has.
    pub(crate) fn load_with_form_secret(
        &self,
        presented: Option<&str>,
        form_cookie: Option<&str>,
        now: u64,
    ) -> Result<Live> {
        let mut live = self.load(presented, now)?;
        if !live.has_session() {
            let purpose = self.purpose(FORM_PURPOSE);
            let secret = form_cookie
                .and_then(|signed| self.keys().find_map(|key| key.verify(&purpose, signed)));
            live.form_secret =
                secret.map_or(FormSecret::None, |secret| FormSecret::Presented(secret.to_owned()));
        }
        Ok(live)
    }

    /// Decides where the secret for forms is kept from now on. A session that begins takes over
    /// that of its browser, so that pages which are open stay valid. Before a login this gives
    /// nothing away that a planted session would not; [`Session::renew`](super::Session::renew)
    /// ends it.
    pub(crate) fn settle_form_secret(&self, live: &mut Live) -> FormCookie {
        match std::mem::take(&mut live.form_secret) {
            FormSecret::Presented(secret) | FormSecret::Made(secret) if live.has_session() => {
                if live.csrf_secret().is_none() {
                    live.change(CSRF_SECRET.to_owned(), Some(secret.into()));
                }
                FormCookie::Unchanged
            }
            FormSecret::Made(secret) => {
                FormCookie::Keep(self.key.sign(&self.purpose(FORM_PURPOSE), &secret))
            }
            FormSecret::Retired => FormCookie::Forget,
            FormSecret::Presented(_) | FormSecret::None => FormCookie::Unchanged,
        }
    }

    fn purpose(&self, of: &str) -> String {
        format!("{of}:{}", self.name)
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.key).chain(&self.old_keys)
    }

    /// Keeps what was changed.
    pub(crate) fn save(&self, mut live: Live, now: u64) -> Result<Outcome> {
        let is_touched = live.record.needs_touch(self.lifetime, now);
        if is_touched {
            live.record.touched = now;
        }
        match &self.place {
            Place::Cookie => self.save_in_cookie(&live, is_touched, now),
            Place::Store(store) => self.save_in_store(&**store, &live, is_touched, now),
        }
    }

    fn save_in_cookie(&self, live: &Live, is_touched: bool, now: u64) -> Result<Outcome> {
        if live.record.values.is_empty() {
            let is_emptied = live.is_destroyed || live.changes.values().any(Option::is_none);
            return Ok(if is_emptied { Outcome::Forget } else { Outcome::Nothing });
        }
        if !live.is_changed() && !is_touched {
            return Ok(Outcome::Nothing);
        }
        let content = String::from_utf8(live.record.encode()?)?;
        Ok(Outcome::Keep(
            self.key.seal(&self.purpose(CONTENT_PURPOSE), &content),
            self.keep_for(&live.record, now),
        ))
    }

    fn save_in_store(
        &self,
        store: &dyn SessionStore,
        live: &Live,
        is_touched: bool,
        now: u64,
    ) -> Result<Outcome> {
        let outcome = match &live.stored {
            Some(stored) if live.is_changed() || is_touched => {
                let is_kept = self.replace(store, stored, live, now)?;
                if is_kept && is_touched {
                    self.keep(&stored.key, &stored.token, &live.record, now)
                } else {
                    Outcome::Nothing
                }
            }
            Some(_) => Outcome::Nothing,
            None if !live.record.values.is_empty() => {
                let token = random_token()?;
                let id = self.key.mac(ID_PURPOSE, &token);
                store.insert(&id, &live.record.encode()?, self.keep_for(&live.record, now))?;
                self.keep(&self.key, &token, &live.record, now)
            }
            // A cookie that stands for nothing stays: another request may just have replaced it.
            None if live.is_destroyed || !live.retired.is_empty() => Outcome::Forget,
            None => Outcome::Nothing,
        };
        for id in &live.retired {
            store.remove(id)?;
        }
        Ok(outcome)
    }

    /// Puts the changes of this request and those of others since together. `false`: the session
    /// was ended by another one.
    fn replace(
        &self,
        store: &dyn SessionStore,
        stored: &Stored,
        live: &Live,
        now: u64,
    ) -> Result<bool> {
        let id = &stored.id;
        let mut old = stored.bytes.clone();
        let mut record = live.record.clone();
        for _ in 0..CONFLICTS_MAX {
            if store.replace(id, &old, &record.encode()?, self.keep_for(&record, now))? {
                return Ok(true);
            }
            let Some(newer) = store.load(id)? else { return Ok(false) };
            let Some(decoded) = Record::decode(&newer) else { return Ok(false) };
            record = Record { touched: decoded.touched.max(record.touched), ..decoded };
            record.apply(&live.changes);
            old = newer;
        }
        Err(Error::unavailable("too many requests change the session at once"))
    }

    fn keep(&self, key: &Key, token: &str, record: &Record, now: u64) -> Outcome {
        Outcome::Keep(key.sign(&self.purpose(TOKEN_PURPOSE), token), self.keep_for(record, now))
    }

    fn keep_for(&self, record: &Record, now: u64) -> Duration {
        record.keep_for(self.lifetime, now).unwrap_or_default()
    }
}

/// A text that nobody can guess.
pub(crate) fn random_token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal(format!("there is no randomness: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::MemoryStore;

    const LIFETIME: Lifetime =
        Lifetime { idle: Duration::from_secs(160), absolute: Duration::from_secs(1000) };

    fn keeper(place: Place) -> Keeper {
        Keeper {
            name: "session".to_owned(),
            place,
            key: Key::generate(),
            old_keys: Vec::new(),
            lifetime: LIFETIME,
            generations: None,
        }
    }

    fn in_memory() -> (Keeper, Arc<MemoryStore>) {
        let store = Arc::new(MemoryStore::new());
        (keeper(Place::Store(Arc::<MemoryStore>::clone(&store))), store)
    }

    /// Begins a session with `n` set to 1, and returns its cookie.
    fn begin(keeper: &Keeper) -> String {
        let mut live = keeper.load(None, 0).expect("memory does not fail");
        live.change("n".to_owned(), Some(1.into()));
        match keeper.save(live, 0).expect("memory does not fail") {
            Outcome::Keep(value, _) => value,
            other => panic!("{other:?}"),
        }
    }

    fn number(keeper: &Keeper, cookie: &str, name: &str, now: u64) -> Option<i64> {
        let live = keeper.load(Some(cookie), now).expect("memory does not fail");
        live.record.values.get(name).and_then(Value::as_i64)
    }

    #[test]
    fn sessions_come_back_until_they_are_idle() {
        for keeper in [keeper(Place::Cookie), in_memory().0] {
            let cookie = begin(&keeper);
            assert_eq!(number(&keeper, &cookie, "n", 159), Some(1));
            assert_eq!(number(&keeper, &cookie, "n", 160), None);
        }
    }

    #[test]
    fn use_keeps_a_session_up_to_its_absolute_end() {
        for keeper in [keeper(Place::Cookie), in_memory().0] {
            let mut cookie = begin(&keeper);
            let mut now = 0;
            while now < 900 {
                now += 100;
                let live = keeper.load(Some(&cookie), now).expect("memory does not fail");
                match keeper.save(live, now).expect("memory does not fail") {
                    Outcome::Keep(value, keep_for) => {
                        assert_eq!(keep_for, Duration::from_secs((1000 - now).min(160)));
                        cookie = value;
                    }
                    other => panic!("{other:?} at {now}"),
                }
            }
            assert_eq!(number(&keeper, &cookie, "n", 999), Some(1));
            assert_eq!(number(&keeper, &cookie, "n", 1000), None);
        }
    }

    #[test]
    fn what_was_only_read_is_not_written() {
        let (keeper, _) = in_memory();
        let cookie = begin(&keeper);
        let live = keeper.load(Some(&cookie), 9).expect("memory does not fail");
        assert_eq!(keeper.save(live, 9).expect("memory does not fail"), Outcome::Nothing);
        let mut live = keeper.load(Some(&cookie), 9).expect("memory does not fail");
        live.change("n".to_owned(), Some(1.into()));
        assert!(!live.is_changed(), "the value is the same");
    }

    #[test]
    fn requests_at_once_change_a_session_name_by_name() {
        let (keeper, _) = in_memory();
        let cookie = begin(&keeper);
        let mut first = keeper.load(Some(&cookie), 1).expect("memory does not fail");
        let mut second = keeper.load(Some(&cookie), 1).expect("memory does not fail");
        first.change("a".to_owned(), Some(1.into()));
        first.change("n".to_owned(), None);
        second.change("b".to_owned(), Some(2.into()));
        keeper.save(first, 1).expect("memory does not fail");
        keeper.save(second, 1).expect("memory does not fail");
        let of = |name| number(&keeper, &cookie, name, 2);
        assert_eq!((of("a"), of("b"), of("n")), (Some(1), Some(2), None));
    }

    #[test]
    fn what_one_request_ended_another_does_not_bring_back() {
        for end in [Live::destroy, Live::renew] {
            let (keeper, store) = in_memory();
            let cookie = begin(&keeper);
            let mut slow = keeper.load(Some(&cookie), 1).expect("memory does not fail");
            let mut ends = keeper.load(Some(&cookie), 1).expect("memory does not fail");
            end(&mut ends);
            keeper.save(ends, 1).expect("memory does not fail");
            let kept = store.len();
            slow.change("late".to_owned(), Some(1.into()));
            assert_eq!(keeper.save(slow, 1).expect("memory does not fail"), Outcome::Nothing);
            assert_eq!(number(&keeper, &cookie, "n", 1), None);
            assert_eq!(store.len(), kept);
        }
    }

    #[test]
    fn an_id_in_the_store_is_not_what_the_browser_has() {
        let (keeper, store) = in_memory();
        let cookie = begin(&keeper);
        let token =
            keeper.key.verify(&keeper.purpose(TOKEN_PURPOSE), &cookie).expect("it is signed");
        assert_eq!(store.load(token).expect("memory does not fail"), None);
        assert!(
            store.load(&keeper.key.mac(ID_PURPOSE, token)).expect("memory does not fail").is_some()
        );
        // 256 bits in base64.
        assert_eq!(token.len(), 43);
    }
}
