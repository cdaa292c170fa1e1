//! Requests of clients, and what becomes of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::{Client, Response, eventually_within};

/// Generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients that send the next request when the last one is answered.
pub(crate) struct Traffic {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

/// The request that clients send again and again.
#[derive(Clone, Debug)]
struct Asked {
    request: String,
    /// The expected status.
    status: u16,
    pause: Duration,
}

impl Traffic {
    pub(crate) fn start(address: SocketAddr, clients: usize, target: &str) -> Self {
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n");
        Self::of(address, clients, &Asked { request, status: 200, pause: Duration::ZERO })
    }

    /// Clients that write notes, each with a pause before the next one: there is a limit on the
    /// rate of all of them together.
    pub(crate) fn writing(
        address: SocketAddr,
        clients: usize,
        cookie: &str,
        pause: Duration,
    ) -> Self {
        let note = "{\"text\":\"one of many\"}";
        let request = format!(
            "POST /api/notes HTTP/1.1\r\nHost: t\r\nCookie: {cookie}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{note}",
            note.len()
        );
        Self::of(address, clients, &Asked { request, status: 201, pause })
    }

    fn of(address: SocketAddr, clients: usize, asked: &Asked) -> Self {
        let (is_over, answered) = (Arc::default(), Arc::default());
        let clients = (0..clients).map(|_| {
            let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
            let asked = asked.clone();
            thread::spawn(move || run(address, &asked, &is_over, &answered))
        });
        Self { clients: clients.collect(), is_over, answered }
    }

    /// Returns the counter of the answers with the expected status.
    pub(crate) fn counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.answered)
    }

    /// Waits until this many further requests are answered.
    #[track_caller]
    pub(crate) fn goes_on(&self, count: usize) {
        let until = self.answered.load(Ordering::Relaxed) + count;
        eventually_within(PATIENCE, "requests are answered", || {
            self.answered.load(Ordering::Relaxed) >= until
        });
    }

    /// Returns what failed, for each client.
    pub(crate) fn stop(self) -> Vec<Vec<String>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().map(|client| client.join().unwrap()).collect()
    }
}

fn run(
    address: SocketAddr,
    asked: &Asked,
    is_over: &AtomicBool,
    answered: &AtomicUsize,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut kept: Option<Client> = None;
    while !is_over.load(Ordering::Relaxed) {
        let mut client = kept.take().unwrap_or_else(|| Client::connect(address));
        let sent = client.try_send(&asked.request);
        match sent.map_err(|error| error.to_string()).and_then(|()| answer(&mut client)) {
            Ok(response) if response.status == asked.status => {
                answered.fetch_add(1, Ordering::Relaxed);
                if !response.closes() {
                    kept = Some(client);
                }
            }
            Ok(response) => failures.push(format!("{response:?}")),
            Err(error) => failures.push(error),
        }
        thread::sleep(asked.pause);
    }
    failures
}

fn answer(client: &mut Client) -> Result<Response, String> {
    client.try_response().map_err(|ended| ended.to_string())
}

/// Sends a request on a connection of its own. The content is JSON.
pub(crate) fn try_request(
    address: SocketAddr,
    method: &str,
    target: &str,
    cookie: &str,
    content: &str,
) -> Result<Response, String> {
    send(address, method, target, cookie, "application/json", content)
}

#[track_caller]
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    cookie: &str,
    content: &str,
) -> Response {
    try_request(address, method, target, cookie, content).unwrap()
}

/// Uploads a file.
#[track_caller]
pub(crate) fn upload(address: SocketAddr, cookie: &str, name: &str, text: &str) -> Response {
    let content = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n\
         {text}\r\n--b--\r\n"
    );
    let content_type = "multipart/form-data; boundary=b";
    send(address, "POST", "/api/files", cookie, content_type, &content).unwrap()
}

/// Makes an account, and returns the cookie of its session.
#[track_caller]
pub(crate) fn log_in(address: SocketAddr, name: &str) -> String {
    let content = format!("{{\"name\":\"{name}\",\"password\":\"correct horse\"}}");
    let response = request(address, "POST", "/api/accounts", "", &content);
    assert_eq!(response.status, 201, "{response:?}");
    let cookie = response.header("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

fn send(
    address: SocketAddr,
    method: &str,
    target: &str,
    cookie: &str,
    content_type: &str,
    content: &str,
) -> Result<Response, String> {
    let mut client = Client::connect(address).patience(PATIENCE);
    let length = content.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: t\r\nCookie: {cookie}\r\nConnection: close\r\n\
         Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{content}"
    );
    client.try_send(head).map_err(|error| error.to_string())?;
    answer(&mut client)
}
