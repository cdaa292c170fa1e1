//! What a middleware knows about the middleware further out, where their order matters.

use std::sync::Arc;

use super::RouteOptions;
use crate::core::changed_method::PlansMethod;

/// What the middleware that was configured so far has declared about itself.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// Whether the middleware of the app is being configured. It runs before a route is chosen.
    is_of_app: bool,
    /// Whether the middleware of several routers is joined, in an order that the program did not
    /// choose. This happens for paths that have a guarded prefix but match no route.
    is_joined: bool,
    answers_preflights: bool,
    login: Option<Login>,
    plans_method: Vec<Arc<dyn PlansMethod>>,
    #[cfg(feature = "sessions")]
    session_cookies: Vec<String>,
}

/// A middleware that requires credentials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login {
    /// The name of the middleware.
    pub(crate) name: &'static str,
    /// Whether only a script can send the credentials. Browsers then send a preflight before every
    /// request.
    pub(crate) is_by_script: bool,
}

impl RouteOptions {
    /// Sets whether the middleware of the app is configured from now on, or that of its routers and
    /// routes.
    pub(crate) fn set_is_of_app(&mut self, is_of_app: bool) {
        self.around.is_of_app = is_of_app;
    }

    /// Declares that the middleware of several routers is joined, so that its order is no mistake.
    pub(crate) fn set_is_joined(&mut self) {
        self.around.is_joined = true;
    }

    /// Returns whether the middleware that is configured belongs to the app.
    pub(crate) fn is_of_app(&self) -> bool {
        self.around.is_of_app
    }

    /// Declares that this middleware answers preflights.
    pub(crate) fn answer_preflights(&mut self) {
        self.around.answers_preflights = true;
    }

    /// Declares that this middleware of the app changes the method of some requests.
    pub(crate) fn plan_method(&mut self, plans: Arc<dyn PlansMethod>) {
        self.around.plans_method.push(plans);
    }

    /// Returns the middleware of the app that changes methods, the outermost first.
    pub(crate) fn plans_method(&self) -> &[Arc<dyn PlansMethod>] {
        &self.around.plans_method
    }

    /// Declares that this middleware requires credentials.
    pub(crate) fn require_login(&mut self, login: Login) {
        self.around.login.get_or_insert(login);
    }

    /// Returns the outermost middleware that refuses preflights, because they have no credentials.
    pub(crate) fn login_before_preflights(&self) -> Option<Login> {
        let is_told = !self.around.answers_preflights && !self.around.is_joined;
        self.around.login.filter(|_| is_told)
    }

    /// Declares the cookie of this middleware's sessions. Returns `false` if sessions further out
    /// have the same one.
    #[cfg(feature = "sessions")]
    pub(crate) fn claim_session_cookie(&mut self, name: &str) -> bool {
        let is_taken = self.around.session_cookies.iter().any(|other| other == name);
        let is_free = !is_taken || self.around.is_joined;
        self.around.session_cookies.push(name.to_owned());
        is_free
    }
}
