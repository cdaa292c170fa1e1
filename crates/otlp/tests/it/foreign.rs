//! A foreign decoder reads what is exported: the Python package `opentelemetry-proto`.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tracing::info_span;

use crate::collector::{Collector, SOON, exporting, otlp};
use crate::decode;

/// The variable with the path of a Python that has the package. `.ci/run` sets it.
const PYTHON: &str = "OTLP_PYTHON";

/// Prints the request as JSON. IDs are in base64, as in all JSON of protobuf.
const SCRIPT: &str = "
import sys
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
request = ExportTraceServiceRequest()
request.ParseFromString(sys.stdin.buffer.read())
print(MessageToJson(request))
";

/// Finds a Python with the package.
fn python() -> Option<String> {
    let python = env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let import = ["-c", "import opentelemetry.proto.collector.trace.v1.trace_service_pb2"];
    let has_package = Command::new(&python)
        .args(import)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_package {
        skip::because(&format!("{python} has no package `opentelemetry-proto` (see {PYTHON})"));
    }
    has_package.then_some(python)
}

fn decode_in(python: &str, content: &[u8]) -> Value {
    let mut process = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(content).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns an attribute by its key.
fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let attributes = of["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key} in {attributes:?}"))["value"]
}

/// Exports a failed request, with fields of every kind. Returns what the collector receives.
fn exported_request() -> Vec<u8> {
    let collector = Collector::start();
    exporting(otlp(&collector.url()), |exporter| {
        let request = info_span!(
            target: "filoplume::trace",
            "request",
            otel.name = "GET /users/{id}",
            otel.kind = "server",
            otel.status_code = "ERROR",
            trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
            span_id = "00f067aa0ba902b8",
            parent_span_id = "00f067aa0ba902b7",
            trace_flags = "01",
            trace_state = "vendor=1",
            http.response.status_code = 500,
            negative = -1,
            ratio = 0.5,
            flag = false,
        );
        request.in_scope(|| tracing::error!(cause = "t\u{e4}a", "it failed"));
        drop(request);
        assert!(exporter.flush(SOON));
    });
    collector.next().1
}

#[test]
fn a_foreign_decoder_reads_the_spans() {
    let Some(python) = python() else { return };
    let content = exported_request();
    let own = decode::request(&content).1.remove(0);
    let decoded = decode_in(&python, &content);
    let resource_spans = &decoded["resourceSpans"][0];
    let service = attribute(&resource_spans["resource"], "service.name");
    assert_eq!(service, &json!({ "stringValue": "shop" }));
    let scope_spans = &resource_spans["scopeSpans"][0];
    assert_eq!(scope_spans["scope"]["name"], "filoplume-otlp");
    let span = &scope_spans["spans"][0];
    let expected = [
        ("traceId", json!("S/kvNXezTaajzpKdDg5HNg==")),
        ("spanId", json!("APBnqgupArg=")),
        ("parentSpanId", json!("APBnqgupArc=")),
        ("traceState", json!("vendor=1")),
        ("name", json!("GET /users/{id}")),
        ("kind", json!("SPAN_KIND_SERVER")),
        ("flags", json!(0x301)),
        ("status", json!({ "code": "STATUS_CODE_ERROR" })),
        ("startTimeUnixNano", json!(own.started.to_string())),
        ("endTimeUnixNano", json!(own.ended.to_string())),
    ];
    for (name, value) in expected {
        assert_eq!(span[name], value, "{name}");
    }
    let attributes = [
        ("http.response.status_code", json!({ "intValue": "500" })),
        ("negative", json!({ "intValue": "-1" })),
        ("ratio", json!({ "doubleValue": 0.5 })),
        ("flag", json!({ "boolValue": false })),
    ];
    assert_eq!(span["attributes"].as_array().unwrap().len(), attributes.len());
    for (key, value) in attributes {
        assert_eq!(attribute(span, key), &value, "{key}");
    }
    let event = &span["events"][0];
    assert_eq!(event["name"], "it failed");
    assert_eq!(attribute(event, "cause"), &json!({ "stringValue": "t\u{e4}a" }));
    assert_eq!(attribute(event, "level"), &json!({ "stringValue": "ERROR" }));
}
