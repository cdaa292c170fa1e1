//! No secret that clients send is in anything that the deployment writes or shows.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use deployment::stack::LAME_DUCK;
use harness::{Client, beside_others};

use super::start;
use super::traffic::{log_in, request, upload};

/// Part of each planted secret.
const PLANTED: &str = "hunter2";

/// Sends a request that has a secret wherever one may be. Returns the status.
fn send(address: SocketAddr, method: &str, target: &str, cookie: &str, content: &str) -> u16 {
    let mut client = Client::connect(address);
    client.send(format!(
        "{method} {target}?token={PLANTED}-query HTTP/1.1\r\nHost: t\r\nCookie: {cookie}; \
         other={PLANTED}-cookie\r\nAuthorization: Bearer {PLANTED}-bearer\r\n\
         Proxy-Authorization: Basic {PLANTED}-basic\r\nX-Api-Key: {PLANTED}-key\r\n\
         Referer: http://t/?token={PLANTED}-referer\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{content}",
        content.len()
    ));
    client.response().status
}

/// Returns what an address answers within a second.
fn shown(address: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    let mut text = Vec::new();
    for _ in 0..5 {
        let mut part = vec![0; 1 << 20];
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&part[..length]),
            // A feed does not end.
            Err(_) => {}
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the logs of all programs.
fn logs(folder: &Path) -> Vec<(String, String)> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.map(|path| {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        (path.file_name().unwrap().to_string_lossy().into_owned(), text)
    })
    .collect()
}

#[test]
fn no_secret_is_written_or_shown() {
    let _shared = beside_others();
    let Some((folder, stack)) = start(LAME_DUCK) else { return };
    let address = stack.address();
    let cookie = log_in(address, "ada");
    let account = |password: &str| format!("{{\"name\":\"eve\",\"password\":\"{password}\"}}");
    let secret = account(&format!("{PLANTED}-password"));
    let statuses = [
        // A wrong password, a content that is no JSON, and a new account.
        send(address, "POST", "/api/login", &cookie, &secret),
        send(address, "POST", "/api/login", &cookie, &format!("{secret}{PLANTED}")),
        send(address, "POST", "/api/accounts", "none=0", &secret),
        send(address, "POST", "/api/notes", &cookie, &format!("{{\"text\":\"{PLANTED}-note\"}}")),
        send(address, "POST", "/api/notes", &cookie, &format!("{{\"{PLANTED}-field\":1}}")),
        send(address, "GET", "/api/files", &format!("id={PLANTED}-session"), ""),
        send(address, "GET", "/nowhere", &cookie, ""),
        send(address, "DELETE", "/api/notes", &cookie, ""),
    ];
    assert_eq!(statuses, [403, 400, 201, 201, 422, 401, 404, 405]);
    assert_eq!(upload(address, &cookie, "a.txt", &format!("{PLANTED}-content")).status, 201);
    // A request that fails because Redis does not answer.
    stack.pause_redis(true).unwrap();
    let failed = send(address, "POST", "/api/notes", &cookie, &format!("{PLANTED}-late"));
    assert!(matches!(failed, 500 | 503), "{failed}");
    stack.pause_redis(false).unwrap();
    let value = cookie.split_once('=').unwrap().1;
    let mut written = logs(folder.path());
    assert!(written.len() >= 5, "{:?}", written.iter().map(|(name, _)| name).collect::<Vec<_>>());
    for index in 0..2 {
        let (instance, console) = (stack.instance(index), stack.console(index));
        written.push(("metrics".to_owned(), shown(instance, "/metrics")));
        written.push(("console".to_owned(), shown(console, "/console/events")));
    }
    if let Some(prometheus) = stack.prometheus() {
        written.push(("series".to_owned(), shown(prometheus, "/api/v1/label/__name__/values")));
        let all = "/api/v1/series?match%5B%5D=%7B__name__%3D~%22.%2B%22%7D";
        written.push(("labels".to_owned(), shown(prometheus, all)));
    }
    for (name, text) in &written {
        assert!(!text.is_empty() || name.ends_with(".log"), "{name} is empty");
        for secret in [PLANTED, value] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{name} has {secret}");
        }
    }
    // The paths of the requests are logged, so the search above would find secrets there.
    let has = |path: &str| written.iter().any(|(_, text)| text.contains(path));
    assert!(has("/api/login") && has("/nowhere"));
    assert_eq!(request(address, "GET", "/api/notes", "", "").status, 200);
}
