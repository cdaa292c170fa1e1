//! The options of a route, which are collected at start-up from its handler, its middleware and the
//! program.

mod around;
mod contradictions;
mod extensions;
mod promises;
#[cfg(feature = "websocket")]
mod sockets;

use std::any::TypeId;
use std::borrow::Cow;
use std::panic::Location;

use filoplume_runtime::{Permits, Plan, Request};

use super::captures::Capture;
use super::changed_method::{AnswerWithPermit, answer_with_permit};
use super::coded_content::CodedContent;
use super::middleware::Layer;
#[cfg(feature = "cookies")]
use super::middleware::{Middleware, layer};
use super::names::type_name_of;
use super::takes::Takes;
use around::Around;
pub(crate) use around::Login;
use extensions::ExtensionAdvice;
use promises::Promises;

/// The maximum length of the content, unless a route sets another. Forms and JSON that people send
/// are far below it.
pub(crate) const CONTENT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// The options of a route.
///
/// Extractors and middleware set them in their `configure` method. The app collects them once per
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
    /// The maximum length of content that is collected in memory, unless the route sets another.
    collected_bytes_max: u64,
    /// The server's maximum, if the app has set it.
    #[cfg(feature = "compression")]
    server_bytes_max: Option<u64>,
    coded_content: CodedContent,
    execution: Execution,
    permits: Option<Permits>,
    /// Answers a request that was planned without these permits. Set with them, so that programs
    /// without permits do not contain it.
    answer_with_permit: Option<AnswerWithPermit>,
    /// The permits of another kind that the route was also told to use.
    second_permits: Option<Permits>,
    /// Whether the requests of the app are counted and measured.
    pub(crate) is_observed: bool,
    promises: Promises,
    around: Around,
    #[cfg(feature = "websocket")]
    sockets: sockets::Sockets,
    /// Checks of the captures, by the parameters that read them.
    capture_checks: Vec<CaptureCheck>,
    needs_states: Vec<(TypeId, String)>,
    mistakes: Vec<String>,
    /// The extensions that the middleware so far adds to requests.
    provided: Vec<TypeId>,
    /// Whether some middleware so far does not declare the extensions it adds.
    provides_anything: bool,
    /// Whether the parameter that is being configured may be missing.
    is_optional: bool,
    /// Messages for required extensions that no middleware further out provides, and for parameters
    /// that can never be extracted.
    unprovided: Vec<Cow<'static, str>>,
    missing_extensions: Vec<ExtensionAdvice>,
    /// The middleware that parameters of the handler imply, with constructors.
    implied: Vec<(TypeId, fn() -> Layer)>,
}

/// Returns what is wrong with the captures of a pattern.
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
            collected_bytes_max: CONTENT_BYTES_MAX,
            #[cfg(feature = "compression")]
            server_bytes_max: None,
            coded_content: CodedContent::default(),
            execution: Execution::default(),
            permits: None,
            answer_with_permit: None,
            second_permits: None,
            is_observed: false,
            promises: Promises::default(),
            around: Around::default(),
            #[cfg(feature = "websocket")]
            sockets: sockets::Sockets::default(),
            capture_checks: Vec::new(),
            needs_states: Vec::new(),
            mistakes: Vec::new(),
            provided: Vec::new(),
            provides_anything: false,
            is_optional: false,
            unprovided: Vec::new(),
            missing_extensions: Vec::new(),
            implied: Vec::new(),
        }
    }

    /// Sets the maximum length of the content. Longer content is answered with `413`. The last call
    /// takes effect: middleware is configured from the outermost to the innermost, then the route.
    /// Default: 2 MiB for content that is collected in memory, or the server's limit if that is
    /// lower, and the server's limit for content that a handler reads as a stream.
    pub fn content_bytes_max(&mut self, bytes: u64) -> &mut Self {
        self.content_bytes_max = Some(bytes);
        self
    }

    /// Always runs the handler on the event loop. Other requests still make progress: if the
    /// handler does not return, another thread takes over the loop.
    pub fn on_loop(&mut self) -> &mut Self {
        self.execution = Execution::Inline;
        self
    }

    /// Always runs the handler on a thread of the pool.
    pub fn on_pool(&mut self) -> &mut Self {
        self.execution = Execution::Dispatched;
        self
    }

    pub(crate) fn is_on_pool(&self) -> bool {
        matches!(self.execution, Execution::Dispatched)
    }

    /// Calls the handler only while it holds one of these permits: see
    /// [`Route::uses`](crate::Route::uses). A route that uses two kinds of permits is a mistake. So
    /// is one whose handler reads a content as it arrives.
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
                "permits \"{}\" have a count of 0: no request would ever get one",
                permits.name()
            ));
        }
        self.answer_with_permit = Some(answer_with_permit);
        match &self.permits {
            Some(first) if first != permits => self.second_permits = Some(permits.clone()),
            _ => self.permits = Some(permits.clone()),
        }
        self
    }

    /// Returns the permits that the route uses.
    pub(crate) fn permits(&self) -> Option<&Permits> {
        self.permits.as_ref()
    }

    /// Returns the permits that the route uses, and what answers a request that may not hold one.
    pub(crate) fn late_permits(&self) -> Option<(&Permits, AnswerWithPermit)> {
        self.permits.as_ref().zip(self.answer_with_permit)
    }

    /// Requires a state of this type. An app without one does not start.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    /// use filoplume::{Context, FromRequest};
    ///
    /// struct Motto(&'static str);
    /// struct Greeting(&'static str);
    ///
    /// impl FromRequest for Greeting {
    ///     type Rejection = Error;
    ///
    ///     fn from_request(_: &mut Request, context: &Context<'_>) -> Result<Self> {
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

    /// Reports a mistake in a parameter of this route.
    #[cfg(feature = "form")]
    pub(crate) fn refuse_route(&mut self, mistake: String) {
        self.unprovided.push(mistake.into());
    }

    /// Configures a parameter that may be missing, or whose rejection the handler receives.
    pub(crate) fn optional(&mut self, configure: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_optional, true);
        configure(self);
        self.is_optional = outer;
    }

    /// Adds a middleware directly around the handler, once for all parameters that imply it.
    #[cfg(feature = "cookies")]
    pub(crate) fn imply<M: Middleware + Default>(&mut self) {
        let id = TypeId::of::<M>();
        if !self.implied.iter().any(|(of, _)| *of == id) {
            self.implied.push((id, || layer(M::default())));
        }
    }

    /// Requires a pattern with captures. An app with a route whose pattern has none does not start.
    pub fn require_captures(&mut self) -> &mut Self {
        self.capture_checks.push(|_| None);
        self
    }

    /// Like [`require_captures`](Self::require_captures), and also checks the captures.
    pub(crate) fn require_captures_that(&mut self, check: CaptureCheck) {
        self.capture_checks.push(check);
    }

    /// Reports a mistake in the set-up of a middleware or extractor. The app does not start, and
    /// reports the mistake once for all routes, with the line that has added the middleware.
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

    /// Declares that the content is taken, for example by middleware that reads it.
    pub fn take(&mut self, takes: Takes) -> &mut Self {
        self.takes = match (self.takes, takes) {
            (takes, Takes::Nothing) => takes,
            // Streamed content can still be collected, but collected content cannot be streamed.
            (Takes::Stream, _) | (_, Takes::Stream) => Takes::Stream,
            (_, takes) => takes,
        };
        self
    }

    /// Declares that coded content is decoded.
    #[cfg(feature = "compression")]
    pub(crate) fn decode_content(&mut self) {
        self.coded_content = CodedContent::Decoded;
    }

    pub(crate) fn mistakes(&self) -> &[String] {
        &self.mistakes
    }

    /// Adds the line of middleware to the mistakes that it has reported: all but the first ones.
    pub(crate) fn locate_mistakes(&mut self, known: usize, at: &Location<'_>) {
        for mistake in self.mistakes.iter_mut().skip(known) {
            *mistake = format!("{mistake} ({at})");
        }
    }

    pub(crate) fn needs_captures(&self) -> bool {
        !self.capture_checks.is_empty()
    }

    /// Returns the mistakes in the captures of the pattern, one per parameter.
    pub(crate) fn capture_mistakes(&self, captures: &[Capture]) -> Vec<String> {
        self.capture_checks.iter().filter_map(|check| check(captures)).collect()
    }

    pub(crate) fn needs_states(&self) -> &[(TypeId, String)] {
        &self.needs_states
    }

    pub(crate) fn unprovided(&self) -> &[Cow<'static, str>] {
        &self.unprovided
    }

    /// Returns the middleware that parameters of the handler imply.
    pub(crate) fn implied_layers(&self) -> Vec<Layer> {
        self.implied.iter().map(|(_, make)| make()).collect()
    }

    /// Applies the server's maximum to contents that are collected, if it is lower.
    pub(crate) fn limit_contents(&mut self, bytes: u64) {
        self.collected_bytes_max = self.collected_bytes_max.min(bytes);
        #[cfg(feature = "compression")]
        {
            self.server_bytes_max = Some(bytes);
        }
    }

    /// Returns the server's maximum, if the app has set it.
    #[cfg(feature = "compression")]
    pub(crate) fn server_bytes_max(&self) -> Option<u64> {
        self.server_bytes_max
    }

    /// Returns the maximum length of the content, or `None` if only the server's limit applies.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        match self.takes {
            Takes::Nothing | Takes::Stream | Takes::Request => self.content_bytes_max,
            Takes::Content => Some(self.content_bytes_max.unwrap_or(self.collected_bytes_max)),
        }
    }

    /// Returns whether the announced length of the content exceeds the maximum.
    pub(crate) fn refuses(&self, request: &Request) -> bool {
        match (request.content_length(), self.bytes_max()) {
            (Some(length), Some(max)) => length > max,
            _ => false,
        }
    }

    /// Like [`refuses`](Self::refuses), also for a request that was planned for another route, such
    /// as a `POST` that became a `PUT`. Its content was limited by the other route's maximum, or
    /// still is, so this method applies the maximum of this route.
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

    /// Returns the plan for a request of this route.
    #[inline]
    pub(crate) fn plan(&self, request: &Request, number: u32) -> Plan {
        let mut plan = Plan::new().route(number);
        match self.execution {
            Execution::Learned => {}
            Execution::Inline => plan = plan.on_loop(),
            Execution::Dispatched => plan = plan.on_pool(),
        }
        if let Some(permits) = &self.permits {
            plan = plan.uses(permits);
        }
        plan = self.promises.apply(plan);
        if request.content_length() == Some(0) { plan } else { self.plan_content(request, plan) }
    }

    #[inline(never)]
    fn plan_content(&self, request: &Request, plan: Plan) -> Plan {
        if self.refuses(request) {
            // The request is refused where its handler would be called, so that middleware sees the
            // response. The content is not read for that.
            return plan.streamed().content_bytes_max(u64::MAX);
        }
        // Short content is collected on the loop, even if nothing takes it: that costs less than a
        // thread that waits. But if the peer sends `Expect` and nothing takes the content, an
        // immediate response is better.
        let is_unwanted =
            self.takes == Takes::Nothing || self.coded_content.is_refused(self.takes, request);
        let holds_memory =
            self.coded_content.is_decoded(request) || self.promises.counts_value(request);
        let plan = if holds_memory { plan.holds_memory() } else { plan };
        let is_held_back = request.headers().contains("expect");
        let plan = if is_unwanted && is_held_back { plan.streamed() } else { plan };
        #[cfg(feature = "spool")]
        let plan = if self.promises.is_spooled && !is_unwanted { plan.spooled() } else { plan };
        match (self.takes, self.bytes_max()) {
            // The extractor needs the whole content, so it is collected before a thread is used. A
            // slow peer holds no thread.
            (Takes::Content, Some(bytes)) => {
                plan.content_bytes_max(bytes).buffered_content_bytes_max(bytes)
            }
            (_, Some(bytes)) => plan.content_bytes_max(bytes),
            (_, None) => plan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_says_where_the_handler_runs() {
        let request = http::Request::get("/").body(Vec::new()).expect("it is valid");
        let request = Request::try_from(request).expect("it is valid");
        let shown = |options: &RouteOptions| format!("{:?}", options.plan(&request, 1));
        let mut options = RouteOptions::new();
        let plans = [shown(&options), shown(options.on_loop()), shown(options.on_pool())];
        let expected = [Plan::new(), Plan::new().on_loop(), Plan::new().on_pool()];
        assert_eq!(plans, expected.map(|plan| format!("{:?}", plan.route(1))));
    }
}
