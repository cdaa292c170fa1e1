//! A trace that goes from one server to the next.

use filoplume::middleware::{Incoming, TraceContext, Tracing};
use filoplume::prelude::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn traced(app: App) -> App {
    app.with(Tracing::new().incoming(Incoming::Trust))
}

#[test]
fn one_trace_goes_through_an_outgoing_call_into_a_second_app() {
    let second = traced(App::new().get("/stock", |trace: TraceContext| {
        let parent = trace.parent_id().map(|id| id.to_string()).unwrap_or_default();
        format!("{} {parent} {}", trace.trace_id(), trace.tracestate().unwrap_or("none"))
    }));
    let second = second.start("127.0.0.1:0").unwrap();
    let url = format!("http://{}/stock", second.local_addr());

    let first = traced(App::new().get("/", move |trace: TraceContext| -> Result<String> {
        let mut call = ureq::get(&url);
        for (name, value) in trace.headers() {
            call = call.header(name, value);
        }
        let answer = call.call()?.body_mut().read_to_string()?;
        Ok(format!("{} {answer}", trace.span_id()))
    }));
    let response = first
        .test()
        .get("/")
        .header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .header("tracestate", "vendor=1, other=2")
        .send();
    let text = response.text();
    let parts: Vec<&str> = text.split(' ').collect();
    let [own_span, trace_id, parent, state] = parts.as_slice() else { panic!("{text}") };
    assert_eq!((*trace_id, *state), (TRACE, "vendor=1,other=2"));
    assert_eq!(parent, own_span, "the caller's span is the parent of the next one");
    second.shutdown();
}
