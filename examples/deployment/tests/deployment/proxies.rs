//! Which proxies the instances trust to name the address of a client.

use std::time::Duration;

use harness::{Client, beside_others, eventually};

use super::start_with;

/// Sends a request to the first instance as a proxy would, and checks the client in its log.
fn client_is(stack: &deployment::stack::Stack, target: &str, expected: &str) {
    let mut client = Client::connect(stack.instance(0));
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!(client.response().status, 200);
    let parts = [format!("\"path\":\"{target}\""), format!("\"client\":\"{expected}\"")];
    eventually(&format!("{parts:?} is logged"), || {
        stack.log("first").unwrap().lines().any(|line| parts.iter().all(|part| line.contains(part)))
    });
}

#[test]
fn the_environment_says_which_proxies_are_trusted() {
    let _shared = beside_others();
    let Some((_folder, mut stack)) = start_with(|options| options.lame_duck(Duration::ZERO)) else {
        return;
    };
    // By default, the proxies on this machine are trusted.
    client_is(&stack, "/", "203.0.113.9");
    for (trusted, target, expected) in [
        ("10.0.0.0/8", "/page.js", "127.0.0.1"),
        ("", "/api/notes", "127.0.0.1"),
        (" 10.0.0.0/8 ,127.0.0.1 ", "/live", "203.0.113.9"),
    ] {
        stack.kill_instance(0).unwrap();
        stack.set_variable("TRUSTED_PROXIES", trusted);
        stack.start_instance(0).unwrap();
        client_is(&stack, target, expected);
    }
    // With an invalid value an instance does not start, rather than trust nobody or everybody.
    stack.kill_instance(0).unwrap();
    stack.set_variable("TRUSTED_PROXIES", "10.0.0.0/33");
    assert!(stack.start_instance(0).is_err());
    assert!(stack.log("first").unwrap().contains("10.0.0.0/33"));
}
