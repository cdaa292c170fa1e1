//! WebSockets and event streams behind proxies, with the settings of the guide as they are printed
//! there.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use filoplume::prelude::*;
use filoplume::sse::{Event, Hub, LastEventId};
use filoplume::websocket::{Socket, WebSocketUpgrade};
use filoplume_tests::{Client, DEADLINE, eventually, free_address, installed};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, client};

const GUIDE: &str = include_str!("../../docs/guide/connections.md");

/// A running proxy. It ends with its test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Proxy {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

/// Returns the first code block of the guide's section on proxies that begins with this line.
fn settings(first_line: &str) -> &'static str {
    let (_, section) = GUIDE.split_once("\n## Behind a proxy\n").unwrap();
    let (_, block) = section.split_once(&format!("\n```{first_line}\n")).unwrap();
    block.split_once("\n```\n").unwrap().0
}

fn haproxy(folder: &Path, address: SocketAddr, app: SocketAddr) -> Proxy {
    let file = folder.join("haproxy.cfg");
    let settings = settings("text");
    let rest = format!(
        "\n    timeout connect 5s\nfrontend all\n    bind {address}\n    \
         http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]\n    \
         default_backend app\nbackend app\n    server app {app}\n"
    );
    std::fs::write(&file, settings.to_owned() + &rest).unwrap();
    Proxy::start(Command::new("haproxy").args(["-db", "-q", "-f"]).arg(file))
}

fn nginx(folder: &Path, address: SocketAddr, app: SocketAddr) -> Proxy {
    let file = folder.join("nginx.conf");
    let (map, location) = settings("nginx").split_once("\n\n").unwrap();
    // Without these settings, nginx would create its folders for the whole system.
    let own: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {name};\n"))
        .concat();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log error.log;\nevents {{}}\n\
         http {{\naccess_log off;\n{own}upstream app {{ server {app}; }}\n{map}\n\
         server {{\nlisten {address};\n{location}\n}}\n}}\n"
    );
    std::fs::write(&file, configuration).unwrap();
    Proxy::start(Command::new("nginx").arg("-p").arg(folder).arg("-c").arg(file))
}

fn app(hub: &Hub) -> App {
    App::new()
        .state(hub.clone())
        .get("/", || "ready")
        .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
        })
}

/// Each message comes back before the next one is sent. The handshake is that of a browser that
/// shows a page of the proxy's site.
fn a_websocket_works_at(address: SocketAddr) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
    // The app compares `Origin` with `Host`, so the proxy must not replace `Host`.
    let origin = format!("http://{address}").parse().unwrap();
    request.headers_mut().insert("origin", origin);
    let (mut socket, _) = client(request, stream).unwrap();
    for message in [Message::text("hello"), Message::text("long ".repeat(50_000))] {
        socket.send(message.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), message);
    }
    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
}

/// Each event arrives before the next one is sent, although the response goes on.
fn an_event_stream_works_at(address: SocketAddr, hub: &Hub) {
    let mut client = Client::connect(address);
    client.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client.read_head_only().unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let mut received = String::new();
    for text in ["first", "second"] {
        hub.send(Event::new(text));
        while !received.contains(&format!("data: {text}\n\n")) {
            let mut byte = client.read_exactly(1);
            received.push(char::from(byte.remove(0)));
        }
    }
}

fn check(program: &str, start: impl Fn(&Path, SocketAddr, SocketAddr) -> Proxy) {
    if !installed(program) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hub = Hub::new();
    let app = app(&hub).start("127.0.0.1:0").unwrap();
    let address = free_address();
    let _proxy = start(folder.path(), address, app.local_addr());
    eventually("the proxy answers", || {
        Client::try_connect(address).is_ok_and(|mut client| {
            client.try_send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").is_ok()
                && client.try_response().is_ok_and(|response| response.text() == "ready")
        })
    });
    a_websocket_works_at(address);
    an_event_stream_works_at(address, &hub);
}

#[test]
fn the_guides_settings_for_haproxy_pass_websockets_and_events_on() {
    check("haproxy", haproxy);
}

#[test]
fn the_guides_settings_for_nginx_pass_websockets_and_events_on() {
    check("nginx", nginx);
}
