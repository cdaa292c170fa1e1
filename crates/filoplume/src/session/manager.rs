//! Loads sessions from the cookie or the store, and saves them there.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::form_secret::{FormCookie, FormSecret};
pub(crate) use super::mismatch::Mismatches;
use super::record::{Changes, Lifetime, Record};
use super::{CSRF_SECRET, Generations, SUBJECT, SessionOwner, SessionStore};
use crate::core::error::{Error, Result};
use crate::key::Key;

/// Random bytes of a token: it cannot be guessed, and no two sessions share it.
const TOKEN_BYTES: usize = 32;

/// The maximum number of attempts to merge the changes of a request with those of others.
const CONFLICTS_MAX: u32 = 16;

// The purposes for which a key signs, hashes or encrypts. A value that was made for one purpose is
// not accepted for another. For values in cookies, the purpose includes the name of the cookie, so
// that a value from one part of an app is not accepted in another.
const TOKEN_PURPOSE: &str = "session-token";
const ID_PURPOSE: &str = "session-id";
const CONTENT_PURPOSE: &str = "session-content";
const FORM_PURPOSE: &str = "session-form";

/// What a store has under an ID while its session gets another one: no record, so it is not loaded.
const CLAIMED: &[u8] = b"claimed";

/// How long it is kept if it cannot be removed.
const CLAIMED_FOR: Duration = Duration::from_secs(60);

/// Loads and saves sessions.
#[derive(Clone)]
pub(crate) struct SessionManager {
    /// The name of the cookie. It distinguishes these sessions from others with the same key.
    pub(crate) name: String,
    pub(crate) storage: Storage,
    pub(crate) key: Key,
    /// Earlier keys, with which existing sessions may have been signed.
    pub(crate) old_keys: Vec<Key>,
    pub(crate) lifetime: Lifetime,
    pub(crate) generations: Option<Arc<dyn Generations>>,
    pub(crate) mismatches: Arc<Mismatches>,
}

/// Where sessions are kept.
#[derive(Clone)]
pub(crate) enum Storage {
    /// In the cookie itself, encrypted.
    Cookie,
    Store(Arc<dyn SessionStore>),
}

/// A session that is being used by a request.
pub(crate) struct LoadedSession {
    pub(crate) record: Record,
    /// The session in the store; `None` if it has not been stored yet.
    stored: Option<Stored>,
    pub(super) changes: Changes,
    form_secret: FormSecret,
    /// The session in the store whose ID becomes invalid with this request.
    retired: Option<Stored>,
    is_renewed: bool,
    is_destroyed: bool,
}

/// A session as the store has it.
struct Stored {
    /// The key with which the session was begun. The token is signed and hashed with it.
    key: Key,
    /// The random text in the cookie.
    token: String,
    /// The name of the session in the store: a keyed hash of the token, which cannot be used as a
    /// cookie.
    id: String,
    /// The record as it was loaded.
    bytes: Vec<u8>,
}

/// What to do with the cookie of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CookieAction {
    Unchanged,
    /// Set this value, with this lifetime.
    Set {
        value: String,
        keep_for: Duration,
        /// Whether browsers keep it when they are closed, even with `until_browser_closes`.
        is_remembered: bool,
    },
    Remove,
}

impl LoadedSession {
    fn new(now: u64) -> Self {
        Self {
            record: Record::new(now),
            stored: None,
            changes: Changes::new(),
            form_secret: FormSecret::None,
            retired: None,
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
        self.retire();
        self.is_renewed = true;
        self.form_secret.retire();
        // Somebody who knew the old ID may have known this secret too.
        self.change(CSRF_SECRET.to_owned(), None);
    }

    pub(crate) fn destroy(&mut self) {
        self.retire();
        self.is_destroyed = true;
        self.form_secret.retire();
        self.record = Record::new(super::now());
        self.changes.clear();
    }

    /// There is at most one to retire: what the request has after that is stored under a new ID.
    fn retire(&mut self) {
        self.retired = self.stored.take().or_else(|| self.retired.take());
    }

    /// Returns whether there is a session, or will be one unless its values are removed.
    fn has_session(&self) -> bool {
        self.stored.is_some() || !self.record.values.is_empty()
    }

    /// Returns the CSRF secret: that of the session, or that of a browser without one. (The latter
    /// is never set if the request has a session.)
    pub(crate) fn csrf_secret(&self) -> Option<&str> {
        let own = self.record.values.get(CSRF_SECRET).and_then(Value::as_str);
        own.or_else(|| self.form_secret.get())
    }

    /// Sets a new CSRF secret: in the session if there is one, otherwise in the cookie.
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

impl SessionManager {
    /// Returns the session for a cookie, or a new one. An ID that the browser made up is never
    /// used.
    pub(crate) fn load(&self, presented: Option<&str>, now: u64) -> Result<LoadedSession> {
        let Some(presented) = presented else { return Ok(LoadedSession::new(now)) };
        let found = match &self.storage {
            Storage::Cookie => {
                let opened =
                    self.keys().find_map(|key| key.open(&self.purpose(CONTENT_PURPOSE), presented));
                if opened.is_none() {
                    self.mismatches.log_foreign_key(presented);
                }
                opened
                    .and_then(|content| Record::decode(content.as_bytes()))
                    .map(|record| (record, None))
            }
            Storage::Store(store) => {
                // A made-up ID has no valid signature, so it never reaches the store.
                let purpose = self.purpose(TOKEN_PURPOSE);
                let verified =
                    self.keys().find_map(|key| Some((key, key.verify(&purpose, presented)?)));
                let Some((key, token)) = verified else {
                    self.mismatches.log_foreign_key(presented);
                    return Ok(LoadedSession::new(now));
                };
                let id = key.mac(ID_PURPOSE, token);
                // The record, which contains the exact time, is not read yet.
                let bytes = store.load_presented(&id, self.lifetime.longest())?;
                bytes.and_then(|bytes| {
                    let record = Record::decode(&bytes)?;
                    Some((
                        record,
                        Some(Stored { key: key.clone(), token: token.to_owned(), id, bytes }),
                    ))
                })
            }
        };
        if let Some((record, _)) = &found {
            self.mismatches.log_foreign_clock(record, now);
        }
        let alive = found.filter(|(record, _)| record.keep_for(self.lifetime, now).is_some());
        let Some((record, stored)) = alive else { return Ok(LoadedSession::new(now)) };
        let is_revoked = self.is_revoked(&record)?;
        let mut live = LoadedSession { record, stored, ..LoadedSession::new(now) };
        if is_revoked {
            live.destroy();
        }
        Ok(live)
    }

    /// Returns whether the login of a session has been revoked.
    fn is_revoked(&self, record: &Record) -> Result<bool> {
        let (Some(generations), Some(login)) = (&self.generations, record.values.get(SUBJECT))
        else {
            return Ok(false);
        };
        // An entry that this version cannot read may have been revoked, so it is not trusted.
        let Ok((subject, generation)) = <(String, u64)>::deserialize(login) else {
            return Ok(true);
        };
        Ok(generation < generations.current(&subject)?)
    }

    /// Returns the current generation of a subject, or 0 if the app has no generations.
    pub(crate) fn generation(&self, subject: &str) -> Result<u64> {
        self.generations.as_ref().map_or(Ok(0), |generations| generations.current(subject))
    }

    /// Like [`load`](Self::load), with the CSRF secret of a browser without a session.
    pub(crate) fn load_with_form_secret(
        &self,
        presented: Option<&str>,
        form_cookie: Option<&str>,
        now: u64,
    ) -> Result<LoadedSession> {
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

    /// Decides where the CSRF secret is kept from now on. A new session takes over the secret of
    /// its browser, so that open pages stay valid. Before a login, this reveals no more than a
    /// planted session would. At login, [`Session::renew`](super::Session::renew) replaces the
    /// secret.
    pub(crate) fn settle_form_secret(&self, live: &mut LoadedSession) -> FormCookie {
        match std::mem::take(&mut live.form_secret) {
            FormSecret::Presented(secret) | FormSecret::Made(secret) if live.has_session() => {
                if live.csrf_secret().is_none() {
                    live.change(CSRF_SECRET.to_owned(), Some(secret.into()));
                }
                FormCookie::Unchanged
            }
            FormSecret::Made(secret) => {
                FormCookie::Set(self.key.sign(&self.purpose(FORM_PURPOSE), &secret))
            }
            FormSecret::Retired => FormCookie::Remove,
            FormSecret::Presented(_) | FormSecret::None => FormCookie::Unchanged,
        }
    }

    fn purpose(&self, of: &str) -> String {
        format!("{of}:{}", self.name)
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.key).chain(&self.old_keys)
    }

    /// Saves the changes.
    pub(crate) fn save(&self, mut live: LoadedSession, now: u64) -> Result<CookieAction> {
        let is_touched = live.record.needs_touch(self.lifetime, now);
        if is_touched {
            live.record.touched = now;
        }
        match &self.storage {
            Storage::Cookie => self.save_in_cookie(&live, is_touched, now),
            Storage::Store(store) => self.save_in_store(&**store, &live, is_touched, now),
        }
    }

    fn save_in_cookie(
        &self,
        live: &LoadedSession,
        is_touched: bool,
        now: u64,
    ) -> Result<CookieAction> {
        if live.record.values.is_empty() {
            let is_emptied = live.is_destroyed || live.changes.values().any(Option::is_none);
            return Ok(if is_emptied { CookieAction::Remove } else { CookieAction::Unchanged });
        }
        if !live.is_changed() && !is_touched {
            return Ok(CookieAction::Unchanged);
        }
        let content = String::from_utf8(live.record.encode()?)?;
        let value = self.key.seal(&self.purpose(CONTENT_PURPOSE), &content);
        Ok(self.set_value(value, &live.record, now))
    }

    fn save_in_store(
        &self,
        store: &dyn SessionStore,
        live: &LoadedSession,
        is_touched: bool,
        now: u64,
    ) -> Result<CookieAction> {
        let action = match &live.stored {
            Some(stored) if live.is_changed() || is_touched => {
                let is_kept = self.replace(store, stored, live, now)?;
                if is_kept && (is_touched || live.sets_lifetime()) {
                    self.set_cookie(&stored.key, &stored.token, &live.record, now)
                } else {
                    CookieAction::Unchanged
                }
            }
            Some(_) => CookieAction::Unchanged,
            None => match &live.retired {
                Some(retired) if !live.is_destroyed => {
                    return self.save_under_new_id(store, retired, live, now);
                }
                retired => {
                    if let Some(retired) = retired {
                        store.remove(&retired.id)?;
                    }
                    if !live.record.values.is_empty() {
                        self.insert(store, &live.record, now)?
                    } else if live.is_destroyed {
                        CookieAction::Remove
                    } else {
                        // An unknown cookie is not removed: another request may just have replaced
                        // it.
                        CookieAction::Unchanged
                    }
                }
            },
        };
        Ok(action)
    }

    /// Stores a record under a new ID.
    fn insert(&self, store: &dyn SessionStore, record: &Record, now: u64) -> Result<CookieAction> {
        let token = random_token()?;
        let id = self.key.mac(ID_PURPOSE, &token);
        store.insert_for(record.owner(), &id, &record.encode()?, self.keep_for(record, now))?;
        Ok(self.set_cookie(&self.key, &token, record, now))
    }

    /// Gives a renewed session its new ID. The record under the old one is claimed first, which
    /// only one request can do. Otherwise a session that another request has destroyed would be
    /// restored.
    fn save_under_new_id(
        &self,
        store: &dyn SessionStore,
        retired: &Stored,
        live: &LoadedSession,
        now: u64,
    ) -> Result<CookieAction> {
        let claimed = Self::replace_merged(store, retired, live, |old, record| {
            // A record that cannot be stored is not claimed.
            record.encode()?;
            store.replace_for(SessionOwner::Visitor, &retired.id, old, CLAIMED, CLAIMED_FOR)
        })?;
        let record = match claimed {
            Some(record) => record,
            None if live.logs_in() => live.own_changes(),
            None => return Ok(CookieAction::Unchanged),
        };
        let action = if record.values.is_empty() {
            CookieAction::Remove
        } else {
            self.insert(store, &record, now)?
        };
        store.remove(&retired.id)?;
        Ok(action)
    }

    /// Merges the changes of this request with those that others have saved since. Returns `false`
    /// if another request has ended the session.
    fn replace(
        &self,
        store: &dyn SessionStore,
        stored: &Stored,
        live: &LoadedSession,
        now: u64,
    ) -> Result<bool> {
        let replaced = Self::replace_merged(store, stored, live, |old, record| {
            let (new, keep_for) = (record.encode()?, self.keep_for(record, now));
            store.replace_for(record.owner(), &stored.id, old, &new, keep_for)
        })?;
        Ok(replaced.is_some())
    }

    /// Calls `replace` with the record as the store has it, and with the one that this request
    /// makes of it, until the former has not changed meanwhile. Returns the latter, or `None` if
    /// another request has ended the session.
    fn replace_merged(
        store: &dyn SessionStore,
        stored: &Stored,
        live: &LoadedSession,
        replace: impl Fn(&[u8], &Record) -> Result<bool>,
    ) -> Result<Option<Record>> {
        let mut old = stored.bytes.clone();
        let mut record = live.record.clone();
        for _ in 0..CONFLICTS_MAX {
            if replace(&old, &record)? {
                return Ok(Some(record));
            }
            let Some(newer) = store.load(&stored.id)? else { return Ok(None) };
            let Some(decoded) = Record::decode(&newer) else { return Ok(None) };
            record = Record {
                created: decoded.created.max(record.created),
                touched: decoded.touched.max(record.touched),
                values: decoded.values,
            };
            record.apply(&live.changes);
            old = newer;
        }
        Err(Error::unavailable("too many requests change the session at the same time"))
    }

    fn set_cookie(&self, key: &Key, token: &str, record: &Record, now: u64) -> CookieAction {
        self.set_value(key.sign(&self.purpose(TOKEN_PURPOSE), token), record, now)
    }

    fn set_value(&self, value: String, record: &Record, now: u64) -> CookieAction {
        CookieAction::Set {
            value,
            keep_for: self.keep_for(record, now),
            is_remembered: record.remembered_for().is_some(),
        }
    }

    fn keep_for(&self, record: &Record, now: u64) -> Duration {
        record.keep_for(self.lifetime, now).unwrap_or_default()
    }
}

/// Returns a random text that cannot be guessed.
pub(crate) fn random_token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal(format!("the system has no randomness: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests;
