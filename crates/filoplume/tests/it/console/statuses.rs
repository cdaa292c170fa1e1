//! The statuses of responses, in the errors of their routes.

use super::*;

/// Seven other statuses of a route, which its clients can cause, have taken all counters of single
/// statuses.
#[test]
fn server_errors_are_counted_apart_whatever_else_a_route_has_answered() {
    let answer = |Path(status): Path<u16>| StatusCode::from_u16(status).unwrap();
    let app = App::new().get("/{status}", answer).metrics("/metrics");
    let client = app.console("/console", console()).test();
    for status in [200, 400, 401, 404, 413, 415, 422, 429, 500, 503, 503] {
        assert_eq!(client.get(&format!("/{status}")).send().status(), status);
    }
    let feed = client.get("/console/events").basic("ada", "sesame").send();
    let data = feed.text().strip_prefix("event: snapshot\ndata: ").unwrap();
    let snapshot: Value = serde_json::from_str(data).unwrap();
    assert_eq!(route(&snapshot, "/{status}").unwrap()["errors"], 3);
    let metrics = client.get("/metrics").send();
    for (status, count) in [("422", 1), ("other", 1), ("5xx", 3)] {
        let labels = format!("{{method=\"GET\",route=\"/{{status}}\",status=\"{status}\"}}");
        metrics.assert_contains(&format!("http_server_requests_total{labels} {count}\n"));
    }
}
