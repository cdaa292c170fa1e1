//! Command lines and the plans that they become.

use super::*;

#[track_caller]
fn refused(arguments: &str, part: &str) {
    let error = plan(arguments).unwrap_err();
    assert!(error.contains(part), "{arguments}: {error}");
}

#[test]
fn the_definition_of_the_command_line_is_consistent() {
    use clap::CommandFactory;
    Arguments::command().debug_assert();
}

#[test]
fn most_arguments_have_a_default() {
    let plan = plan(":8080").unwrap();
    assert_eq!((plan.connections, plan.depth, plan.keep_alive), (64, 1, true));
    assert_eq!(plan.end, End { after: Some(Duration::from_secs(10)), requests: None });
    assert_eq!(plan.requests.template(0).bytes, b"GET / HTTP/1.1\r\nhost: 127.0.0.1:8080\r\n\r\n");
    assert_eq!((plan.rate, plan.verify, plan.errors_max), (None, None, None));
}

#[test]
fn a_number_of_requests_needs_no_duration() {
    assert_eq!(plan(":1 -n 10k").unwrap().end, End { after: None, requests: Some(10_000) });
    let both = End { after: Some(Duration::from_millis(500)), requests: Some(5) };
    assert_eq!(plan(":1 -n 5 -d 500ms").unwrap().end, both);
}

#[test]
fn a_request_has_the_given_method_headers_and_content() {
    let bytes = |arguments| plan(arguments).unwrap().requests.template(0).bytes.clone();
    let text = |arguments| String::from_utf8(bytes(arguments)).unwrap();
    assert_eq!(
        text("http://127.0.0.1:1/x -X PUT -H A:b -b abc").replace("\r\n", "|"),
        "PUT /x HTTP/1.1|host: 127.0.0.1:1|A: b|content-length: 3||abc"
    );
    assert!(text(":1 -b abc").starts_with("POST / HTTP/1.1"));
    assert_eq!(text("tcp://:1 -l 5"), "01234");
}

#[test]
fn the_environment_has_an_authorization_for_requests_without_one() {
    let value = |lines: &[&str], variable| {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        let headers = headers_with(&lines, variable)?;
        Ok::<_, String>(headers.get_str("authorization").map(str::to_owned))
    };
    assert_eq!(value(&["A: b"], Some("Bearer x ")), Ok(Some("Bearer x".to_owned())));
    assert_eq!(value(&["authorization: y"], Some("Bearer x")), Ok(Some("y".to_owned())));
    assert_eq!(value(&[], Some("")), Ok(None));
    assert_eq!(value(&[], None), Ok(None));
    let error = value(&[], Some("secret\r\nA: b")).unwrap_err();
    assert!(error.starts_with("GUST_AUTHORIZATION ") && !error.contains("secret"), "{error}");
}

#[test]
fn invalid_arguments_are_refused() {
    refused("", "required");
    refused("nonsense", "is not a URL");
    refused(":1 -c 0", "--connections is 0");
    refused(":1 -p 0", "--pipeline is 0");
    refused(":1 -n 0", "nothing to do");
    refused(":1 -d 0s", "nothing to do");
    refused(":1 -d soon", "is not a duration");
    refused(":1 -r 0", "is not a rate");
    refused(":1 -p 2 --no-keepalive", "leave out --pipeline");
    refused(":1 -p 2 -H Connection:close", "leave out --pipeline");
    refused(":1 -l 5", "-l is for tcp:// and ws://");
    refused(":1 --sse -l 5", "-l is for tcp:// and ws://");
    refused(":1 -H nonsense", "is not a header");
    refused(":1 -H a@b:c", "is not a valid header");
    refused(":1 -X CONNECT", "tunnel");
    refused(":1 -X a@b", "is not a method");
    refused(":1 -B /does/not/exist", "cannot read /does/not/exist");
    refused(":1 --urls /does/not/exist", "cannot read /does/not/exist");
    refused(":1 --expect fine", "is not a list of statuses");
    refused(":1 --verify=taste", "must be echo, status or body");
    refused(":1 --threshold 5%", "--compare");
    refused(":1 --blocking-threads 4 -r 100", "cannot be used with");
    refused("tcp://:1 -X POST", "are for http://");
    refused("tcp://:1 -l 0", "--length is 0");
    refused(":1/a%20b\u{e9}", "target is malformed");
}

#[test]
fn the_choices_of_verify_depend_on_the_protocol() {
    assert_eq!(plan(":1 --verify").unwrap().verify, Some(Verify::Body));
    assert_eq!(plan(":1 --verify=status").unwrap().verify, Some(Verify::Status));
    assert_eq!(plan("tcp://:1 --verify").unwrap().verify, Some(Verify::Echo));
    refused("tcp://:1 --verify=body", "have only echo");
}

#[test]
fn a_connection_close_header_turns_keep_alive_off() {
    let words = ["gust", ":1", "-H", "Connection: close"];
    let plan = Arguments::try_parse_from(words).unwrap().load.plan().unwrap();
    assert!(!plan.keep_alive);
    assert!(plan.requests.template(0).bytes.ends_with(b"\r\nconnection: close\r\n\r\n"));
}

#[test]
fn live_connections_have_options_of_their_own() {
    let socket = plan("ws://127.0.0.1:1/chat -l 5 -H Origin:http://here").unwrap();
    assert_eq!((socket.protocol, socket.holds), (Protocol::WebSocket, false));
    // A masked text of five bytes.
    assert_eq!(socket.requests.template(0).bytes[..2], [0x81, 0x85]);
    assert!(plan("ws://127.0.0.1:1 --hold").unwrap().holds);
    let events = plan(":1 --sse").unwrap();
    assert_eq!((events.protocol, events.holds), (Protocol::Events, true));
    let request = String::from_utf8(events.requests.template(0).bytes.clone()).unwrap();
    assert!(request.contains("accept: text/event-stream\r\n"), "{request}");
    let held = plan(":1 --hold").unwrap();
    assert_eq!((held.protocol, held.holds), (Protocol::Http, true));
    refused("tcp://127.0.0.1:1 --hold", "--hold is for ws://");
    refused(":1 --hold --no-keepalive", "are not for --no-keepalive");
    refused(":1 --hold -H Connection:close", "are not for --no-keepalive");
    refused("ws://127.0.0.1:1 -H Connection:close", "are not for --no-keepalive");
    refused(":1 --deflate", "for ws://");
    refused("ws://127.0.0.1:1 --sse", "--sse is for http://");
    refused("ws://127.0.0.1:1 --hold -n 5", "leave out -n");
    refused(":1 --hold --verify", "leave out -n");
    refused(":1 --sse -r 5", "leave out -n, -r");
    refused(":1 --sse -X POST", "--sse sends a GET");
    refused("ws://127.0.0.1:1 --no-keepalive", "are not for --no-keepalive");
    refused("ws://127.0.0.1:1 --blocking-threads 2", "--blocking-threads");
    refused("ws://127.0.0.1:1 -b abc", "leave out -X, -b");
    refused("ws://127.0.0.1:1 -l 0", "--length is 0");
    refused("ws://127.0.0.1:1 -H Upgrade:h2c", "a part of the WebSocket handshake");
    refused("ws://127.0.0.1:1 --verify=body", "have only echo");
    refused("ws://127.0.0.1:1 --insecure", "--insecure is for");
}
