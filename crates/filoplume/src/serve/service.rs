//! An app as a service of the engine.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use filoplume_runtime::{
    Exchange, Incomplete, Monitor, Plan, Refusal, Refused, Request, Response, ServerConfig,
    Service, Stopping, Stuck,
};

use crate::app::{BuiltApp, ServerTiming};
use crate::core::error::{Error, in_one_line};
use crate::log::log_without_subscriber;
use crate::middleware::TraceContext;
use crate::observe::Observer;
use crate::routing::NO_ROUTE;

/// An app as a service of the engine, for programs that bind the server themselves:
///
/// ```
/// use filoplume::Server;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "Hello!").build()?;
/// let server = Server::builder().bind("127.0.0.1:0")?.bind("[::1]:0")?.build()?;
/// server.spawn(app)?;
/// server.shutdown_handle().shutdown();
/// server.wait();
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct AppService {
    app: Arc<BuiltApp>,
}

impl AppService {
    pub(crate) fn new(app: BuiltApp) -> Self {
        Self { app: Arc::new(app) }
    }

    /// Ends an app that has no server, as in a test client. A server ends its app itself.
    pub(crate) fn end(&self) {
        self.app.settings.stopping.tell();
        self.app.stopped();
    }

    #[inline]
    fn answer_observed(&self, observer: &Observer, request: Request) -> Response {
        let route = request.route();
        let counts = observer.begin_request(route);
        let mut response = self.app.answer(request);
        if let Some(counts) = counts {
            counts.end(response.status().as_u16());
        }
        if response.status().is_server_error() {
            let cause_of = |response: &Response| Error::of(response).and_then(Error::kind);
            observer.failed(route, &mut response, trace_id_of, cause_of);
        }
        response
    }
}

impl Service for AppService {
    #[inline]
    fn plan(&self, request: &mut Request) -> Plan {
        let table = &self.app.table;
        let plan = match table.route_of(request.method(), request.path()) {
            Some(number) => match table.route(number) {
                Some(route) => route.options.plan(request, number),
                None => Plan::new(),
            },
            // The call answers the request, behind the app's middleware. The content is not needed.
            None => Plan::new().streamed().route(NO_ROUTE),
        };
        if self.app.special_plans.are_needed {
            return self.app.plan_specially(request, plan);
        }
        plan
    }

    #[inline]
    fn call(&self, request: Request) -> Response {
        let Some(observer) = &self.app.settings.observer else { return self.app.answer(request) };
        let is_asked = !self.app.server_timing.is_never() && ServerTiming::is_asked(&request);
        let mut response = self.answer_observed(observer, request);
        if is_asked {
            ServerTiming::mark(&mut response);
        }
        response
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.app.settings.proxies.trusts(address.to_canonical())
    }

    fn client(&self, request: &Request) -> Option<IpAddr> {
        self.app.settings.proxies.client_ip(request)
    }

    fn started(&self, monitor: &Monitor) {
        let _ = self.app.settings.monitor.set(monitor.clone());
        if let Some(observer) = &self.app.settings.observer {
            observer.started(monitor);
        }
    }

    fn measures(&self) -> bool {
        self.app.settings.observer.is_some()
    }

    fn answered(&self, response: &mut Response, exchange: &mut Exchange) {
        if let Some(observer) = &self.app.settings.observer {
            observer.keep(response, exchange, trace_id_of);
        }
        if !self.app.server_timing.is_never() {
            self.app.server_timing.show(response, exchange);
        }
    }

    fn completed(&self, exchange: &Exchange) {
        let Some(observer) = &self.app.settings.observer else { return };
        // A request whose handler has returned is counted with the status of its response.
        if exchange.refusal.is_some() && exchange.ran.is_none() {
            observer.refused(exchange);
        }
        observer.measured(exchange);
    }

    fn refused(&self, request: &Request, refused: &Refused<'_>) -> Option<Response> {
        if refused.reason() == Refusal::ClientThreads {
            self.app.settings.proxies.warn_of_untrusted(request);
        }
        let mut response = self.app.refused(request, refused);
        if let Some(observer) = &self.app.settings.observer {
            let because = || refused.because().to_string();
            observer.note_refusal(request.route(), &mut response, because);
        }
        if ServerTiming::is_asked(request) {
            ServerTiming::mark(&mut response);
        }
        Some(response)
    }

    fn incomplete(&self, incomplete: &Incomplete<'_>) {
        if let (Some(observer), Some(request), Some(status)) =
            (&self.app.settings.observer, incomplete.request(), incomplete.reason().status())
        {
            observer.incomplete(request.route(), status, incomplete.timing().as_ref());
        }
        self.app.settings.proxies.warn_of_proxy_header(incomplete);
        self.app.incomplete(incomplete);
    }

    fn body_failed(&self, route: Option<&str>, error: &io::Error) {
        let route = route.unwrap_or("(no route)");
        let Some(left_out) = self.app.settings.throttles.bodies.admit(route) else { return };
        let error = in_one_line(error);
        tracing::warn!(
            route,
            error,
            left_out = left_out.field(),
            "the reader of a response body failed"
        );
        log_without_subscriber(&format!("{route}: the response was cut short: {error}{left_out}"));
    }

    fn stuck(&self, stuck: &Stuck) {
        stuck.warn();
        log_without_subscriber(&stuck.to_string());
    }

    fn config(&self) -> Option<ServerConfig> {
        self.app.config.clone()
    }

    fn stopping(&self) -> Option<Stopping> {
        Some(self.app.settings.stopping.clone())
    }

    fn stopped(&self) {
        self.app.stopped();
    }

    fn route_name(&self, route: u32) -> Option<String> {
        if route == NO_ROUTE {
            return Some("(no route)".to_owned());
        }
        let route = self.app.table.route(route)?;
        Some(format!("{} {}", route.methods, route.pattern))
    }
}

/// Returns the ID of the trace that a response belongs to, if it has one.
fn trace_id_of(response: &Response) -> Option<String> {
    response.extensions().get().map(|trace: &TraceContext| trace.trace_id().to_string())
}

impl fmt::Debug for AppService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.app.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener for both versions of IP sees IPv4 addresses in their IPv6 form.
    #[test]
    fn a_proxy_is_trusted_by_either_form_of_its_address() {
        let app = crate::App::new().trust_proxies(["192.0.2.1"]).build().expect("it is valid");
        for (address, expected) in
            [("192.0.2.1", true), ("::ffff:192.0.2.1", true), ("::ffff:192.0.2.2", false)]
        {
            assert_eq!(app.is_proxy(address.parse().expect("it is valid")), expected, "{address}");
        }
    }
}
