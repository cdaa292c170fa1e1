//! The CSRF secret of a browser without a session: loading a form does not start a session.
//!
//! A session has its own secret, [`CSRF_SECRET`](super::CSRF_SECRET). A browser without a session
//! has a secret in a separate signed cookie (a signed double-submit cookie), and nothing is stored
//! for it. If a request has a session, only the secret of the session counts.

/// The state of the secret of a browser without a session.
#[derive(Default)]
pub(super) enum FormSecret {
    #[default]
    None,
    /// The request contained it, with a valid signature.
    Presented(String),
    /// It was created for a page of this response.
    Made(String),
    /// The request contained it, and the session was renewed or destroyed since. The browser must
    /// delete it.
    Retired,
}

/// What to do with the cookie that contains the secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormCookie {
    Unchanged,
    /// Set this value.
    Set(String),
    Remove,
}

impl FormSecret {
    pub(super) fn get(&self) -> Option<&str> {
        match self {
            Self::Presented(secret) | Self::Made(secret) => Some(secret),
            Self::None | Self::Retired => None,
        }
    }

    /// Invalidates the secret, so that somebody who knew it cannot use it any longer.
    pub(super) fn retire(&mut self) {
        *self = match self {
            Self::Presented(_) | Self::Retired => Self::Retired,
            Self::None | Self::Made(_) => Self::None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_secret_that_the_browser_has_is_removed_from_it() {
        for (mut secret, is_removed) in [
            (FormSecret::None, false),
            (FormSecret::Made("new".to_owned()), false),
            (FormSecret::Presented("old".to_owned()), true),
            (FormSecret::Retired, true),
        ] {
            secret.retire();
            assert_eq!(matches!(secret, FormSecret::Retired), is_removed);
            assert_eq!(secret.get(), None);
        }
    }
}
