//! The sessions that later handshakes resume.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Most tickets that are kept. Each is used once. A run with a connection per request uses one per
/// request and gets one or more with each handshake; rustls' own store keeps 8, so that most
/// handshakes of many connections would be full ones.
const TICKETS_MAX: usize = 16 * 1024;

/// The sessions with the one server of a run.
#[derive(Default)]
pub(super) struct Sessions {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.known().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.known().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.known().tls12 = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.known().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.known().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut known = self.known();
        if known.tickets.len() == TICKETS_MAX {
            known.tickets.pop_front();
        }
        known.tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        // The newest ticket is the last one to expire.
        self.known().tickets.pop_back()
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tickets", self.known().tickets.len())
    }
}
