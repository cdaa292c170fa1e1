//! Which requests become sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use filoplume::extract::Proxies;
use filoplume::prelude::*;
use filoplume::websocket::{AllowOrigins, Socket, WebSocketUpgrade};

use crate::client::{Client, handshake, text};

fn echo(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
}

#[test]
fn a_plain_request_is_told_what_to_do() {
    let client = App::new().websocket("/ws", echo).test();
    client
        .get("/ws")
        .send()
        .assert_status(426)
        .assert_header("upgrade", "websocket")
        .assert_header("sec-websocket-version", "13")
        .assert_contains("new WebSocket");
}

#[test]
fn a_malformed_handshake_is_refused() {
    let client = App::new().websocket("/ws", echo).test();
    let rows = [
        ("sec-websocket-version", "8", 426),
        ("sec-websocket-version", "", 426),
        ("sec-websocket-key", "c2hvcnQ=", 400),
        ("sec-websocket-key", "not base64", 400),
        ("sec-websocket-protocol", "a,,b", 400),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost.evil.example", 403),
    ];
    for (name, value, status) in rows {
        let mut request = client.get("/ws");
        let fields = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for (field, value) in fields.into_iter().filter(|(field, _)| *field != name) {
            request = request.header(field, value);
        }
        request.header(name, value).send().assert_status(status);
    }
}

#[test]
fn an_origin_is_accepted_if_it_is_the_host_or_allowed() {
    let app = App::new()
        .websocket("/ws", echo)
        .websocket("/some", |upgrade: WebSocketUpgrade| {
            echo(upgrade.allow_origins(["https://app.example/", "https://last.example"]))
        })
        .websocket("/any", |upgrade: WebSocketUpgrade| echo(upgrade.allow_any_origin()))
        .websocket("/wrong", |upgrade: WebSocketUpgrade| echo(upgrade.allow_origins(["a.example"])))
        .nest(
            "/listed",
            Router::new()
                .get("/ws", echo)
                .with(AllowOrigins::new(["https://app.example", "http://localhost:3000/"])),
        )
        .start("127.0.0.1:0")
        .unwrap();
    let own = format!("http://{}", app.local_addr());
    let rows = [
        ("/ws", own.as_str(), "101"),
        ("/ws", "https://app.example", "403"),
        ("/some", own.as_str(), "101"),
        ("/some", "https://APP.example", "101"),
        ("/some", "https://last.example", "101"),
        ("/some", "https://other.example", "403"),
        ("/any", "https://other.example", "101"),
        ("/any", "null", "101"),
        ("/wrong", own.as_str(), "500"),
        ("/listed/ws", own.as_str(), "101"),
        ("/listed/ws", "https://App.example", "101"),
        ("/listed/ws", "http://localhost:3000", "101"),
        ("/listed/ws", "http://localhost", "403"),
    ];
    for (path, origin, status) in rows {
        let (_stream, head, _) = handshake(app.local_addr(), path, &[("Origin", origin)]);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {origin}: {head}");
    }
}

/// Another program, in front of this one or behind it, may look at either of two origins.
#[test]
fn two_origins_are_none_that_is_accepted() {
    let app = App::new().websocket("/ws", echo).start("127.0.0.1:0").unwrap();
    let own = format!("http://{}", app.local_addr());
    for origins in [[own.as_str(), "https://other.example"], [own.as_str(), own.as_str()]] {
        let fields = origins.map(|origin| ("Origin", origin));
        let (_stream, head, _) = handshake(app.local_addr(), "/ws", &fields);
        assert!(head.starts_with("HTTP/1.1 403 "), "{origins:?}: {head}");
    }
}

/// Anyone on the network path can write a page of `http`.
#[test]
fn a_page_without_https_opens_no_socket_over_https() {
    let app = App::new()
        .websocket("/ws", echo)
        .trust_proxies(Proxies::loopback().x_forwarded_proto())
        .start("127.0.0.1:0")
        .unwrap();
    let host = app.local_addr();
    for (scheme, page, status) in [
        ("https", "https", "101"),
        ("https", "http", "403"),
        ("http", "http", "101"),
        // A proxy in front of this one may have ended TLS.
        ("http", "https", "101"),
    ] {
        let origin = format!("{page}://{host}");
        let fields = [("X-Forwarded-Proto", scheme), ("Origin", &*origin)];
        let (_stream, head, _) = handshake(host, "/ws", &fields);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{scheme} {page}: {head}");
    }
}

/// A proxy often asks for another host than the browser did.
#[test]
fn a_trusted_proxy_says_which_host_the_page_has() {
    for (trusted, origin, status) in [
        (Proxies::loopback().x_forwarded_host(), "http://app.example", "101"),
        (Proxies::loopback().x_forwarded_host(), "http://other.example", "403"),
        (Proxies::loopback(), "http://app.example", "403"),
        (Proxies::new().network("10.0.0.0/8").x_forwarded_host(), "http://app.example", "403"),
    ] {
        let app = App::new().websocket("/ws", echo).trust_proxies(trusted.clone());
        let app = app.start("127.0.0.1:0").unwrap();
        let fields = [("X-Forwarded-Host", "app.example"), ("Origin", origin)];
        let (_stream, head, _) = handshake(app.local_addr(), "/ws", &fields);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{trusted:?} {origin}: {head}");
    }
}

#[test]
fn a_refused_origin_is_told_to_the_developer_and_a_mistake_to_no_client() {
    let app = || {
        App::new().websocket("/ws", echo).websocket("/wrong", |upgrade: WebSocketUpgrade| {
            echo(upgrade.allow_origins(["a.example"]))
        })
    };
    let rows = [
        (false, "/ws", "403", "opened by a page of another site", true),
        (false, "/ws", "403", "AllowOrigins", false),
        (true, "/ws", "403", "WebSocketUpgrade::allow_origins", true),
        (false, "/wrong", "500", "a.example", false),
        (false, "/wrong", "500", "allow_origins", false),
        (true, "/wrong", "500", "`a.example` is not an origin: it must begin with a scheme", true),
    ];
    for (is_development, path, status, text, is_told) in rows {
        let app = app().development(is_development).start("127.0.0.1:0").unwrap();
        let fields = [("Origin", "https://app.example")];
        let (mut stream, head, rest) = handshake(app.local_addr(), path, &fields);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        app.shutdown();
        let mut content = rest;
        stream.read_to_end(&mut content).unwrap();
        let content = String::from_utf8(content).unwrap();
        assert_eq!(content.contains(text), is_told, "{path} {text}: {content}");
    }
}

/// Otherwise the loop would send one ping after the other, or close every silent socket.
#[test]
fn no_socket_opens_with_a_time_of_zero() {
    let app = App::new()
        .websocket("/ping", |upgrade: WebSocketUpgrade| {
            echo(upgrade.ping_interval(Some(Duration::ZERO)))
        })
        .websocket("/pong", |upgrade: WebSocketUpgrade| echo(upgrade.pong_timeout(Duration::ZERO)))
        .websocket("/none", |upgrade: WebSocketUpgrade| echo(upgrade.ping_interval(None)))
        .development(true)
        .start("127.0.0.1:0")
        .unwrap();
    let rows = [
        ("/ping", "500", "`WebSocketUpgrade::ping_interval` of zero"),
        ("/pong", "500", "`WebSocketUpgrade::pong_timeout` of zero"),
        ("/none", "101", ""),
    ];
    for (path, status, text) in rows {
        let (mut stream, head, mut content) = handshake(app.local_addr(), path, &[]);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut content).unwrap();
        let content = String::from_utf8_lossy(&content);
        assert!(content.contains(text), "{path}: {content}");
    }
}

#[test]
fn an_app_with_an_invalid_origin_does_not_start() {
    let rows = [
        ("app.example", "it must begin with a scheme"),
        ("https://app.example/chat", "without a slash or a path"),
        ("https://*.example", "name each origin"),
        ("*", "use `allow_any_origin`"),
    ];
    for (origin, hint) in rows {
        let app = App::new().websocket("/ws", echo).with(AllowOrigins::new([origin]));
        let error = app.build().unwrap_err().to_string();
        let named = format!("AllowOrigins: `{origin}` is not an origin: ");
        assert!(error.contains(&named) && error.contains(hint), "{error}");
    }
}

#[test]
fn a_subprotocol_is_chosen_by_the_server() {
    let app = App::new()
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade
                .subprotocols(["v2", "v1"])
                .on_open(|socket: &Socket| socket.send(socket.subprotocol().unwrap_or("none")))
        })
        .start("127.0.0.1:0")
        .unwrap();
    for (offered, chosen) in [("v1, v2", "v2"), ("v1", "v1"), ("v3", "none")] {
        let fields = [("Sec-WebSocket-Protocol", offered)];
        let mut client = Client::connect_with(app.local_addr(), "/ws", &fields);
        assert_eq!(client.subprotocol.as_deref().unwrap_or("none"), chosen);
        client.expect(text(chosen));
    }
}

#[test]
fn the_other_parameters_of_the_handler_decide_first() {
    let app = App::new()
        .state("secret")
        .websocket(
            "/ws/{token}",
            |Path(token): Path<String>, State(secret): State<&str>, upgrade: WebSocketUpgrade| {
                if token != *secret {
                    return Err(Error::forbidden("another token"));
                }
                Ok(echo(upgrade))
            },
        )
        .start("127.0.0.1:0")
        .unwrap();
    let (_stream, head, _) = handshake(app.local_addr(), "/ws/guess", &[]);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let mut client = Client::connect(app.local_addr(), "/ws/secret");
    client.text("in");
    client.expect(text("in"));
}

#[test]
fn compression_is_negotiated() {
    let app = App::new()
        .websocket("/ws", echo)
        .websocket("/plain", |upgrade: WebSocketUpgrade| echo(upgrade.compression(None)))
        .start("127.0.0.1:0")
        .unwrap();
    let offer = [("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")];
    let long = "a long text ".repeat(1000);
    for (path, is_compressed) in [("/ws", true), ("/plain", false)] {
        let mut client = Client::connect_with(app.local_addr(), path, &offer);
        assert_eq!(!client.extensions.is_empty(), is_compressed, "{}", client.extensions);
        for _ in 0..3 {
            client.text(&long);
            client.expect(text(&long));
        }
        client.text("");
        client.expect(text(""));
    }
}

/// HTTP/1.0 has no upgrades (RFC 9110 section 7.8).
#[test]
fn a_handshake_of_http_1_0_is_refused() {
    let app = App::new().websocket("/ws", echo).start("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(app.local_addr()).unwrap();
    let head = "GET /ws HTTP/1.0\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let response = std::io::read_to_string(stream).unwrap();
    assert_eq!(response.split(' ').nth(1), Some("426"), "{response}");
}
