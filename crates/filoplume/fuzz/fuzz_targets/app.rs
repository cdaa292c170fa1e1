//! An app with extractors and middleware answers any bytes with correct HTTP, and never with a
//! server error, because nothing that a peer sends is a mistake of the server.

#![no_main]

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use filoplume::extract::{Basic, Bearer, HeaderMap, RawQuery};
use filoplume::middleware::{
    BodyLimit, Cors, Csrf, ETag, MethodOverride, RequestIds, SecurityHeaders, Sessions,
    TimeoutBudget,
};
use filoplume::prelude::*;
use filoplume::session::MemoryStore;
use filoplume::{AppService, Key};
use filoplume_fuzz::{answers, is_fault};
use filoplume_runtime::{Peer, Plan, Service, answer_in_process};
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Note {
    title: String,
    #[serde(default)]
    tags: Vec<String>,
    stars: Option<u8>,
}

/// An app that records the methods of its requests, because the answer to a `HEAD` is parsed in
/// another way.
struct Noted {
    app: AppService,
    methods: Mutex<Vec<Method>>,
}

impl Service for Noted {
    fn plan(&self, request: &mut Request) -> Plan {
        self.methods.lock().unwrap_or_else(PoisonError::into_inner).push(request.method().clone());
        self.app.plan(request)
    }

    fn call(&self, request: Request) -> Response {
        self.app.call(request)
    }
}

fn upload(mut form: Multipart) -> Result<String> {
    let mut told = String::new();
    while let Some(field) = form.next_field()? {
        told += field.name();
        told += &field.text()?;
    }
    Ok(told)
}

fn count(session: Session) -> Result<String> {
    let visits: u32 = session.get("visits")?.unwrap_or_default();
    session.insert("visits", visits.wrapping_add(1))?;
    Ok(format!("{visits}"))
}

fn app() -> App {
    let api = Router::new()
        .get("/notes/{id}", |Path(id): Path<u32>| format!("note {id}"))
        .post("/notes", |Json(note): Json<Note>| Json(note))
        .put("/notes/{id}/{title}", |Path((id, title)): Path<(u32, String)>, text: String| {
            format!("{id} {title} {text}")
        })
        .get("/search", |Query(note): Query<Note>| Json(note))
        .post("/form", |Form(note): Form<Note>| Json(note))
        .with(Cors::new().allow_any_origin())
        .with(BodyLimit::new(1000));
    App::new()
        .nest("/api", api)
        .get("/", || "hello")
        .get("/count", count)
        .post("/upload", upload)
        .get("/headers", |headers: HeaderMap| {
            headers.iter().map(|(_, value)| value.len()).sum::<usize>().to_string()
        })
        .get("/query", |RawQuery(query): RawQuery| query)
        .get("/theme", |cookies: Cookies| {
            let theme: String =
                cookies.get("theme").unwrap_or_default().chars().take(100).collect();
            cookies.set("theme", theme);
        })
        .get("/basic", |basic: Basic| format!("{basic:?}"))
        .get("/bearer", |bearer: Bearer| format!("{bearer:?}"))
        .get("/address", |address: ClientAddr| format!("{address:?}"))
        .get("/next", |RawQuery(query): RawQuery| Redirect::local(&query, "/"))
        .get("/back/{*path}", |Path(path): Path<String>| Redirect::local(&format!("/{path}"), "/"))
        .get("/{a}/{b}/{*rest}", |Path((a, b, rest)): Path<(String, String, String)>| {
            Html(format!("{a}{b}{rest}"))
        })
        .trust_proxies("127.0.0.0/8")
        .with(RequestIds::new())
        .with(SecurityHeaders::new())
        .with(TimeoutBudget::new(Duration::from_secs(3600)))
        .with(ETag::new())
        .with(MethodOverride::new())
        .with(Sessions::new(
            MemoryStore::new(),
            Key::from_secret([7; 64]).expect("it is long enough"),
        ))
        .with(Csrf::new())
}

static NOTED: LazyLock<Noted> = LazyLock::new(|| Noted {
    app: app().build().expect("the app is right"),
    methods: Mutex::default(),
});

/// A few requests, so that the fuzzer need not find all names.
const TARGETS: [&str; 19] = [
    "GET /api/notes/",
    "POST /api/notes",
    "PUT /api/notes/1/",
    "GET /api/search?",
    "POST /api/form",
    "GET /",
    "GET /count",
    "POST /upload",
    "GET /headers",
    "GET /query?",
    "GET /theme",
    "GET /basic",
    "GET /bearer",
    "GET /address",
    "GET /next?",
    "GET /a/b/",
    "OPTIONS /api/notes/",
    "HEAD /api/notes/",
    "GET /back/",
];

fn check(bytes: &[u8]) {
    let noted = &*NOTED;
    noted.methods.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let peer = Peer::Tcp(([127, 0, 0, 1], 1).into());
    let sent = answer_in_process(noted, peer, bytes, &ServerConfig::default());
    let methods = noted.methods.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for answer in answers(&sent, &methods) {
        assert!(!is_fault(&answer), "{answer:?} to {:?}", String::from_utf8_lossy(bytes));
        let is_redirect = (300..400).contains(&answer.status) && answer.status != 304;
        if let Some(location) = answer.header("location").filter(|_| is_redirect) {
            assert!(
                location.starts_with('/')
                    && !location.starts_with("//")
                    && !location.starts_with("/\\"),
                "{location}"
            );
        }
    }
}

fuzz_target!(|input: &[u8]| {
    check(input);
    let Some((&choice, rest)) = input.split_first() else { return };
    let target = TARGETS[usize::from(choice) % TARGETS.len()];
    // The input has the rest of the target, lines of the head, and the content, separated by zeros.
    let mut parts = rest.splitn(3, |&byte| byte == 0);
    let (path, lines, content) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut request = [target.as_bytes(), path, b" HTTP/1.1\r\nhost: a\r\n"].concat();
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(format!("content-length: {}\r\n\r\n", content.len()).as_bytes());
    request.extend_from_slice(content);
    check(&request);
});
