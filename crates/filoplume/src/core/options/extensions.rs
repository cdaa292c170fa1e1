//! The extensions that middleware adds to requests, and that parameters of handlers take.

use std::any::TypeId;
use std::borrow::Cow;

use super::RouteOptions;
use crate::core::names::type_name_of;
use crate::core::states::States;

/// Returns what to do about an extension that no middleware provides.
pub(super) type ExtensionAdvice = fn(&States) -> String;

impl RouteOptions {
    /// Declares that this middleware adds an extension of this type to requests, for the middleware
    /// and handlers further in.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    /// struct Login;
    ///
    /// impl Middleware for Login {
    ///     fn handle(&self, mut request: Request, next: Next) -> Result<Response> {
    ///         request.extensions_mut().insert(User("ada".to_owned()));
    ///         Ok(next.run(request))
    ///     }
    ///
    ///     fn configure(&self, options: &mut RouteOptions) {
    ///         options.provide::<User>();
    ///     }
    /// }
    ///
    /// let app =
    ///     App::new().get("/", |Extension(User(name)): Extension<User>| name).with(Login);
    /// app.test().get("/").send().assert_text("ada");
    /// ```
    pub fn provide<T: 'static>(&mut self) -> &mut Self {
        self.provided.push(TypeId::of::<T>());
        self
    }

    /// Requires middleware further out that [provides](Self::provide) an extension of this type. An
    /// app without it does not start. `otherwise` is the error message, which says what to do: "it
    /// takes a `Session`: add `.with(Sessions::new(..))`".
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    /// use filoplume::{Context, FromRequest};
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// impl FromRequest for User {
    ///     type Rejection = Error;
    ///
    ///     fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self> {
    ///         request.extensions().get().cloned().ok_or(Error::unauthorized("who are you?"))
    ///     }
    ///
    ///     fn configure(options: &mut RouteOptions) {
    ///         // `Login` provides it.
    ///         options.require::<Self>("it takes a `User`: add `.with(Login)`");
    ///     }
    /// }
    ///
    /// let error = App::new().get("/", |User(name): User| name).build().unwrap_err();
    /// assert!(format!("{error:?}").contains("add `.with(Login)`"));
    /// ```
    pub fn require<T: 'static>(&mut self, otherwise: impl Into<Cow<'static, str>>) -> &mut Self {
        let otherwise = otherwise.into();
        if !self.provides(TypeId::of::<T>()) && !self.unprovided.contains(&otherwise) {
            self.unprovided.push(otherwise);
        }
        self
    }

    /// Requires an extension of this type. It may come from middleware that does not declare its
    /// extensions. Optional parameters require nothing.
    pub(crate) fn require_extension<T: 'static>(&mut self) {
        let id = TypeId::of::<T>();
        if !(self.provides_anything || self.is_optional || self.provides(id)) {
            let advice: ExtensionAdvice = extension_advice::<T>;
            if !self.missing_extensions.iter().any(|&known| std::ptr::fn_addr_eq(known, advice)) {
                self.missing_extensions.push(advice);
            }
        }
    }

    /// Returns whether middleware declares that it adds an extension of this type.
    pub(crate) fn provides(&self, id: TypeId) -> bool {
        self.provided.contains(&id)
    }

    /// Records that the route has middleware that does not declare its extensions.
    pub(crate) fn provide_anything(&mut self) {
        self.provides_anything = true;
    }

    pub(crate) fn missing_extensions(&self) -> &[ExtensionAdvice] {
        &self.missing_extensions
    }
}

fn extension_advice<T: 'static>(states: &States) -> String {
    let name = type_name_of::<T>();
    if states.has(TypeId::of::<T>()) {
        return format!(
            "it takes `Extension<{name}>`, but `{name}` is a state: take `State<{name}>`"
        );
    }
    format!(
        "it takes `Extension<{name}>`, but no middleware of the route adds one to the request: add \
         the middleware with `.with(..)`; if it implements `configure`, call \
         `options.provide::<{name}>()` there"
    )
}
