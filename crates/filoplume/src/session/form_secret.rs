//! The secret of the forms of a browser that has no session: a visitor who loads a form needs none.
//!
//! A session has its own secret, [`CSRF_SECRET`](super::CSRF_SECRET). A browser without one has a
//! secret in a signed cookie of its own (a signed double-submit cookie): nothing is stored for it.
//! As soon as a session came with a request, the secret of that session alone counts.

/// What is known of the secret of a browser without a session.
#[derive(Default)]
pub(super) enum FormSecret {
    #[default]
    None,
    /// It came with the request, and its signature is right.
    Presented(String),
    /// It was made for a page of this response.
    Made(String),
    /// It came, and the session was renewed or destroyed since: the browser is to forget it.
    Retired,
}

/// What the browser is told about the cookie with its secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormCookie {
    Unchanged,
    /// Keep this value.
    Keep(String),
    Forget,
}

impl FormSecret {
    pub(super) fn get(&self) -> Option<&str> {
        match self {
            Self::Presented(secret) | Self::Made(secret) => Some(secret),
            Self::None | Self::Retired => None,
        }
    }

    /// Ends the secret, because whoever knew it before must not use it from now on.
    pub(super) fn retire(&mut self) {
        *self = match self {
            Self::Presented(_) | Self::Retired => Self::Retired,
            Self::None | Self::Made(_) => Self::None,
        };
    }
}
