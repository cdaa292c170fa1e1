//! How the requests of a route are taken: collected at start-up from its handler, its middleware
//! and the program.

use std::any::TypeId;
use std::borrow::Cow;
#[cfg(feature = "cookies")]
use std::sync::Arc;

use filoplume_runtime::{Permits, Plan, Request};

use super::captures::Capture;
use super::middleware::Layer;
#[cfg(feature = "cookies")]
use super::middleware::Middleware;
use super::names::type_name_of;
use super::takes::Takes;

/// The longest content that is accepted unless a route says otherwise. Forms and JSON of people are
/// far below.
pub(crate) const CONTENT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// How the requests of a route are taken.
///
/// Extractors and middleware say in their `configure` what they need; the app collects it once a
/// route when it starts.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::routing::RouteOptions;
///
/// /// Routes for short messages.
/// struct Short;
///
/// impl Middleware for Short {
///     fn handle(&self, request: Request, next: Next) -> Result<Response> {
///         Ok(next.run(request))
///     }
///
///     fn configure(&self, options: &mut RouteOptions) {
///         options.content_bytes_max(140);
///     }
/// }
///
/// let client = App::new().post("/", |text: String| text).with(Short).test();
/// client.post("/").body("a".repeat(141)).send().assert_status(413);
/// ```
#[derive(Debug)]
pub struct RouteOptions {
    takes: Takes,
    content_bytes_max: Option<u64>,
    execution: Execution,
    permits: Option<Permits>,
    is_vital: bool,
    /// What reads captures, and what must be true of them.
    capture_checks: Vec<CaptureCheck>,
    needs_states: Vec<(TypeId, String)>,
    mistakes: Vec<String>,
    /// What the middleware so far puts beside requests.
    provided: Vec<TypeId>,
    /// Whether some middleware so far does not say what it puts beside requests.
    provides_anything: bool,
    /// Whether the parameter that is configured leaves to the handler what is not there.
    is_optional: bool,
    /// What is taken and no middleware further out provides, or nothing can: a sentence for each.
    unprovided: Vec<Cow<'static, str>>,
    /// The middleware that parameters of the handler bring along, and how it is made.
    implied: Vec<(TypeId, fn() -> Layer)>,
}

/// Says what is wrong with the captures of a pattern, if anything is.
type CaptureCheck = fn(&[Capture]) -> Option<String>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Execution {
    #[default]
    Learned,
    Inline,
    Dispatched,
}

impl RouteOptions {
    pub(crate) fn new() -> Self {
        Self {
            takes: Takes::Nothing,
            content_bytes_max: None,
            execution: Execution::default(),
            permits: None,
            is_vital: false,
            capture_checks: Vec::new(),
            needs_states: Vec::new(),
            mistakes: Vec::new(),
            provided: Vec::new(),
            provides_anything: false,
            is_optional: false,
            unprovided: Vec::new(),
            implied: Vec::new(),
        }
    }

    /// Sets the longest content that is accepted; a longer one is a `413`. Who is called last
    /// decides: middleware from the outside in, then the route. Default: 2 MiB for what is
    /// collected in memory, and the server's bound for what a handler reads as a stream.
    pub fn content_bytes_max(&mut self, bytes: u64) -> &mut Self {
        self.content_bytes_max = Some(bytes);
        self
    }

    /// Lets the handler run always on the event loop. It still stalls nobody: a loop is taken from
    /// a handler that does not return.
    pub fn inline(&mut self) -> &mut Self {
        self.execution = Execution::Inline;
        self
    }

    /// Lets the handler run always on a thread of the pool.
    pub fn dispatched(&mut self) -> &mut Self {
        self.execution = Execution::Dispatched;
        self
    }

    /// Calls the handler when one of these permits is free: see
    /// [`Route::uses`](crate::Route::uses). A route that would use two kinds of them is a mistake.
    ///
    /// ```
    /// use filoplume::Permits;
    /// use filoplume::prelude::*;
    ///
    /// let (database, mail) = (Permits::new("database", 16), Permits::new("mail", 2));
    /// let route = get(|| "sent").uses(&database).uses(&mail);
    /// let error = App::new().route("/", route).build().unwrap_err();
    /// assert!(format!("{error:?}").contains("uses the permits \"database\" and \"mail\""));
    /// ```
    pub fn uses(&mut self, permits: &Permits) -> &mut Self {
        if permits.count() == 0 {
            self.mistake(format!(
                "there are 0 permits \"{}\": no request would ever have one",
                permits.name()
            ));
        }
        match &self.permits {
            Some(first) if first != permits => {
                let (first, second) = (first.name().to_owned(), permits.name());
                self.mistake(format!(
                    "it uses the permits \"{first}\" and \"{second}\": a route has one kind of them"
                ))
            }
            _ => {
                self.permits = Some(permits.clone());
                self
            }
        }
    }

    /// Runs the handler even if other routes have all threads: see
    /// [`Route::vital`](crate::Route::vital). A vital route that [uses](Self::uses) permits is a
    /// mistake: it would wait for those who have them.
    pub fn vital(&mut self) -> &mut Self {
        self.is_vital = true;
        self
    }

    /// What is wrong with the options together.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let permits = self.permits.as_ref().filter(|_| self.is_vital)?;
        Some(format!(
            "it is vital and uses the permits \"{}\": it would wait for others that have them",
            permits.name()
        ))
    }

    /// Asks for a state of this type; an app that has none does not start.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    /// use filoplume::{Context, Extract};
    ///
    /// struct Motto(&'static str);
    /// struct Greeting(&'static str);
    ///
    /// impl Extract for Greeting {
    ///     type Rejection = Error;
    ///
    ///     fn extract(_: &mut Request, context: &Context<'_>) -> Result<Self> {
    ///         Ok(Self(context.state::<Motto>().map_or("hello", |motto| motto.0)))
    ///     }
    ///
    ///     fn configure(options: &mut RouteOptions) {
    ///         options.require_state::<Motto>();
    ///     }
    /// }
    ///
    /// let app = App::new().get("/", |Greeting(text): Greeting| text);
    /// assert!(app.build().is_err(), "no `Motto` was given");
    /// ```
    pub fn require_state<T: 'static>(&mut self) -> &mut Self {
        self.needs_states.push((TypeId::of::<T>(), type_name_of::<T>()));
        self
    }

    /// Says that this middleware puts a value of this type beside requests, for those further in.
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

    /// Asks for middleware further out that [provides](Self::provide) a value of this type; an app
    /// without it does not start, and `otherwise` says what to do: "it takes a `Session`: add
    /// `.with(Sessions::new(..))`".
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    /// use filoplume::{Context, Extract};
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// impl Extract for User {
    ///     type Rejection = Error;
    ///
    ///     fn extract(request: &mut Request, _: &Context<'_>) -> Result<Self> {
    ///         request.extensions().get().cloned().ok_or(Error::unauthorized("who are you?"))
    ///     }
    ///
    ///     fn configure(options: &mut RouteOptions) {
    ///         options.require::<Self>("it takes a `User`: add `.with(Login)`");       // and `Login` provides it
    ///     }
    /// }
    ///
    /// let error = App::new().get("/", |User(name): User| name).build().unwrap_err();
    /// assert!(format!("{error:?}").contains("add `.with(Login)`"));
    /// ```
    pub fn require<T: 'static>(&mut self, otherwise: impl Into<Cow<'static, str>>) -> &mut Self {
        let otherwise = otherwise.into();
        if !self.provided.contains(&TypeId::of::<T>()) && !self.unprovided.contains(&otherwise) {
            self.unprovided.push(otherwise);
        }
        self
    }

    /// Asks for a value of any type beside the request. It may come from middleware that does not
    /// say what it provides, and a handler may do without it.
    pub(crate) fn require_extension<T: 'static>(&mut self) {
        if self.provides_anything || self.is_optional {
            return;
        }
        let name = type_name_of::<T>();
        self.require::<T>(format!(
            "it takes `Extension<{name}>`, and no middleware around it puts one beside the \
             request: add `.with(..)` with the one that does; if that implements `configure`, it \
             says `options.provide::<{name}>()` there"
        ));
    }

    /// Says what is wrong with a parameter of this route.
    #[cfg(feature = "form")]
    pub(crate) fn refuse_route(&mut self, mistake: String) {
        self.unprovided.push(mistake.into());
    }

    /// Notes that there is middleware of which nobody knows what it puts beside requests.
    pub(crate) fn provide_anything(&mut self) {
        self.provides_anything = true;
    }

    /// Configures a parameter whose refusal the handler deals with.
    pub(crate) fn optional(&mut self, configure: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_optional, true);
        configure(self);
        self.is_optional = outer;
    }

    /// Puts a middleware right around the handler, once for all parameters that ask for it.
    #[cfg(feature = "cookies")]
    pub(crate) fn imply<M: Middleware + Default>(&mut self) {
        let id = TypeId::of::<M>();
        if !self.implied.iter().any(|(of, _)| *of == id) {
            self.implied.push((id, || Arc::new(M::default())));
        }
    }

    /// Asks for a pattern with captures; an app whose pattern has none does not start.
    pub fn require_captures(&mut self) -> &mut Self {
        self.capture_checks.push(|_| None);
        self
    }

    /// As [`require_captures`](Self::require_captures), for captures that also fit a type.
    pub(crate) fn require_captures_that(&mut self, check: CaptureCheck) {
        self.capture_checks.push(check);
    }

    /// Says what is wrong with how a middleware or extractor was set up; the app does not start and
    /// tells it, once for all routes.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    ///
    /// struct Sample {
    ///     percent: u8,
    /// }
    ///
    /// impl Middleware for Sample {
    ///     fn handle(&self, request: Request, next: Next) -> Result<Response> {
    ///         Ok(next.run(request))
    ///     }
    ///
    ///     fn configure(&self, options: &mut RouteOptions) {
    ///         if self.percent > 100 {
    ///             options.mistake("Sample: there are no more than 100 percent");
    ///         }
    ///     }
    /// }
    ///
    /// let error =
    ///     App::new().get("/", || "hi").with(Sample { percent: 120 }).build().unwrap_err();
    /// assert!(format!("{error:?}").contains("no more than 100"));
    /// ```
    pub fn mistake(&mut self, mistake: impl Into<String>) -> &mut Self {
        self.mistakes.push(mistake.into());
        self
    }

    /// Says that the content is taken, such as by middleware that looks into it.
    pub fn take(&mut self, takes: Takes) -> &mut Self {
        self.takes = match (self.takes, takes) {
            (takes, Takes::Nothing) => takes,
            // What is read before it has arrived can be collected too, not the other way round.
            (Takes::Stream, _) | (_, Takes::Stream) => Takes::Stream,
            (_, takes) => takes,
        };
        self
    }

    pub(crate) fn mistakes(&self) -> &[String] {
        &self.mistakes
    }

    pub(crate) fn needs_captures(&self) -> bool {
        !self.capture_checks.is_empty()
    }

    /// What is wrong with the captures of the pattern, a sentence for each parameter.
    pub(crate) fn capture_mistakes(&self, captures: &[Capture]) -> Vec<String> {
        self.capture_checks.iter().filter_map(|check| check(captures)).collect()
    }

    pub(crate) fn needs_states(&self) -> &[(TypeId, String)] {
        &self.needs_states
    }

    pub(crate) fn unprovided(&self) -> &[Cow<'static, str>] {
        &self.unprovided
    }

    /// The middleware that parameters of the handler bring along.
    pub(crate) fn implied_layers(&self) -> Vec<Layer> {
        self.implied.iter().map(|(_, make)| make()).collect()
    }

    /// The longest content, unless the server's bound decides.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        match self.takes {
            Takes::Nothing | Takes::Stream | Takes::Request => self.content_bytes_max,
            Takes::Content => Some(self.content_bytes_max.unwrap_or(CONTENT_BYTES_MAX)),
        }
    }

    /// Whether a content of this request is longer than accepted, and was announced to be.
    pub(crate) fn refuses(&self, request: &Request) -> bool {
        match (request.content_length(), self.bytes_max()) {
            (Some(length), Some(max)) => length > max,
            _ => false,
        }
    }

    /// As [`refuses`](Self::refuses). The content of a request that was planned as another one,
    /// such as a `POST` that became a `PUT`, came within the bound of that one, or still does: that
    /// is made up for here.
    #[inline]
    pub(crate) fn refuses_content(&self, request: &mut Request, is_planned: bool) -> bool {
        self.refuses(request) || (!is_planned && self.refuses_unplanned(request))
    }

    #[inline(never)]
    fn refuses_unplanned(&self, request: &mut Request) -> bool {
        let Some(max) = self.bytes_max() else { return false };
        request.body_mut().bound(max);
        request.body().len().is_some_and(|length| length > max)
    }

    /// The plan for a request of this route.
    #[inline]
    pub(crate) fn plan(&self, request: &Request, number: u32) -> Plan {
        let mut plan = Plan::new().route(number);
        match self.execution {
            Execution::Learned => {}
            Execution::Inline => plan = plan.inline(),
            Execution::Dispatched => plan = plan.dispatched(),
        }
        if let Some(permits) = &self.permits {
            plan = plan.uses(permits);
        }
        if self.is_vital {
            plan = plan.vital();
        }
        if request.content_length() == Some(0) { plan } else { self.plan_content(request, plan) }
    }

    #[inline(never)]
    fn plan_content(&self, request: &Request, plan: Plan) -> Plan {
        if self.refuses(request) {
            // Refused in the call, where middleware sees it; nothing is read for that.
            return plan.streamed().content_bytes_max(u64::MAX);
        }
        // A short content is collected while the loop goes on, whoever takes it: that is cheaper
        // than a thread that waits. A peer that asks before it sends what nobody takes is better
        // told at once.
        let is_unwanted = self.takes == Takes::Nothing && request.headers().contains("expect");
        let plan = if is_unwanted { plan.streamed() } else { plan };
        match (self.takes, self.bytes_max()) {
            // It is wanted whole, so it is collected whole: a slow peer holds no thread.
            (Takes::Content, Some(bytes)) => {
                plan.content_bytes_max(bytes).buffered_content_bytes_max(bytes)
            }
            (_, Some(bytes)) => plan.content_bytes_max(bytes),
            (_, None) => plan,
        }
    }
}
