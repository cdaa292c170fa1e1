//! Every example, started and sent requests.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use filoplume_tests::{Client, Example, free_address, installed};

/// The fixed address of the small examples.
const FIXED: &str = "127.0.0.1:5000";

/// Held by the test that uses the fixed address.
static FIXED_ADDRESS: Mutex<()> = Mutex::new(());

#[test]
fn each_example_is_started_by_a_test() {
    let tests: String = files_in("tests")
        .chain(files_in("tests/it"))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let untested: Vec<String> = examples()
        .into_iter()
        .filter(|name| {
            // `Asking::start(Example("routing"))`, or `says_hello("hello")` and the like.
            !["Example", "says_hello", "has_all_that_is_measured"]
                .iter()
                .any(|starts| tests.contains(&format!("{starts}(\"{name}\")")))
        })
        .collect();
    assert!(untested.is_empty(), "no test starts {untested:?}");
}

#[test]
fn each_folder_of_the_examples_is_a_package_with_its_name() {
    for folder in files_in("../examples") {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains(&format!("[package]\nname = \"{name}\"\n")),
            "{name}: {manifest}"
        );
    }
}

/// An example that needs more than Rust is a workspace of its own. `.ci/run` runs its tests.
#[test]
fn an_example_that_is_a_workspace_has_tests_and_a_step_in_ci() {
    let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/steps/other_workspaces.sh");
    let ci = fs::read_to_string(steps).unwrap();
    let workspaces: Vec<PathBuf> =
        files_in("../examples").filter(|path| is_workspace(path)).collect();
    assert!(!workspaces.is_empty());
    for folder in workspaces {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(folder.join("tests").is_dir(), "{name} has no tests");
        assert!(ci.contains(&format!("examples/{name}")), "no step for {name}");
    }
}

fn is_workspace(folder: &Path) -> bool {
    fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|manifest| manifest.lines().any(|line| line == "[workspace]"))
}

/// Returns the names of the programs in `examples/`: each folder of the workspace with a `main.rs`.
fn examples() -> Vec<String> {
    let names: Vec<String> = files_in("../examples")
        .filter(|path| path.join("src/main.rs").exists() && !is_workspace(path))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(names.iter().any(|name| name == "hello"), "{names:?}");
    names
}

fn files_in(folder: &str) -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}

#[track_caller]
fn says_hello(name: &'static str) {
    let _guard = FIXED_ADDRESS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let address: SocketAddr = FIXED.parse().unwrap();
    if TcpListener::bind(address).is_err() {
        skip::because(&format!("{name} has a fixed address, and {FIXED} is in use"));
        return;
    }
    let child = Example(name).start_at(address);
    let mut client = child.client();
    for _ in 0..3 {
        let response = client.get("/");
        assert_eq!((response.status, response.text()), (200, "Hello from Filoplume!"));
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    let mut clients: Vec<Client> = (0..10).map(|_| child.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "Hello from Filoplume!");
    }
}

#[test]
fn live_console_shows_what_it_does_to_those_who_may_see_it() {
    let child = Example("live_console").start();
    assert_eq!(child.client().get("/").text(), "Hello!");
    assert_eq!(child.client().get("/primes/100").text(), "25");
    let ask = |host: &str| {
        let mut client = child.client();
        client.send(format!("GET /console HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response()
    };
    assert!(ask("localhost").text().contains("<title>Console</title>"));
    assert_eq!(ask("evil.example").status, 421);
}

#[test]
fn https_serves_over_tls_and_redirects_to_it() {
    let redirecting = free_address();
    let child = Example("https").start_with(&[&redirecting.to_string()]);
    // The certificate is made on the spot, so nobody can verify it.
    let mut client = Client::connect(redirecting);
    client.send("GET /session?x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let response = client.response();
    assert_eq!(response.status, 308);
    let url = format!("https://localhost:{}/session?x", child.address().port());
    assert_eq!(response.header("location"), Some(url.as_str()));
    if installed("curl") {
        let output = std::process::Command::new("curl").args(["-sSik", &url]).output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.contains("strict-transport-security: max-age=31536000"), "{output}");
        assert!(output.ends_with("TLSv1.3 for Some(\"localhost\")"), "{output}");
    }
}

#[test]
fn hello_says_hello() {
    says_hello("hello");
}

#[test]
fn engine_says_hello() {
    says_hello("engine");
}

#[test]
fn incoming_says_hello() {
    says_hello("incoming");
}

#[test]
fn bench_engine_has_all_measured_routes() {
    has_all_that_is_measured("bench_engine");
}

#[test]
fn bench_server_has_all_measured_routes() {
    has_all_that_is_measured("bench_server");
}

#[track_caller]
fn has_all_that_is_measured(name: &'static str) {
    let child = Example(name).start();
    let mut client = child.client();
    for (target, content_type, text) in [
        ("/", "text/plain; charset=utf-8", "Hello from Filoplume!"),
        ("/plaintext", "text/plain; charset=utf-8", "Hello, World!"),
        ("/json", "application/json", r#"{"message":"Hello, World!"}"#),
        ("/sleep?ms=20", "text/plain; charset=utf-8", "slept"),
    ] {
        let response = client.get(target);
        assert_eq!((response.status, response.text()), (200, text), "{target}");
        assert_eq!(response.header("content-type"), Some(content_type), "{target}");
    }
    assert_eq!(client.get("/cpu?ms=5").status, 200);
    assert_eq!(client.get("/panic").status, 500);
    assert_eq!(client.get("/nothing").status, 404);
    for n in [0, 1, 1000, 1_048_576, 2_000_000] {
        let large = client.get(&format!("/large?n={n}"));
        assert_eq!(large.header("content-length"), Some(n.to_string().as_str()));
        assert!(large.body.len() == n && large.body.iter().all(|&byte| byte == b'x'));
        let stream = client.get(&format!("/stream?n={n}"));
        assert_eq!(stream.header("transfer-encoding"), Some("chunked"));
        assert!(stream.body == large.body);
    }
    for length in [0, 1, 65_536, 3_000_000] {
        let content: Vec<u8> = (0..length).map(|n: usize| n.to_le_bytes()[0]).collect();
        assert_eq!(client.post("/length", &content).text(), length.to_string());
        assert!(client.post("/echo", &content).body == content, "{length}");
    }
    let head =
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: image/png\r\nContent-Length: 3\r\n\r\npng";
    assert_eq!(client.send(head).response().header("content-type"), Some("image/png"));
    assert_eq!(client.post("/noread", "unread").text(), "not read");
}

#[test]
fn bench_engine_shuts_down_on_sigterm() {
    ends_in_order("bench_engine");
}

#[test]
fn bench_server_shuts_down_on_sigterm() {
    ends_in_order("bench_server");
}

#[test]
fn bench_server_serves_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("page.html"), "<p>from the folder").unwrap();
    fs::create_dir(folder.path().join("inner")).unwrap();
    let child = Example("bench_server").start_with(&[folder.path().to_str().unwrap()]);
    let mut client = child.client();
    let page = client.get("/static/page.html");
    assert_eq!((page.status, page.text()), (200, "<p>from the folder"));
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let part = client
        .send("GET /static/page.html HTTP/1.1\r\nHost: t\r\nRange: bytes=3-6\r\n\r\n")
        .response();
    assert_eq!((part.status, part.text()), (206, "from"));
    for missing in
        ["/static/nothing", "/static/../page.html", "/static/%2e%2e/page.html", "/static/inner/"]
    {
        assert_eq!(client.get(missing).status, 404, "{missing}");
    }
}

#[track_caller]
fn ends_in_order(name: &'static str) {
    let mut child = Example(name).start();
    let mut client = child.client();
    client.get("/");
    child.signal("TERM");
    client.is_closed();
    assert!(child.ends_within(Duration::from_secs(5)).success());
}
