//! The attacked app, with routes of each kind.

use std::collections::HashMap;
use std::hint::black_box;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use filoplume::Key;
use filoplume::extract::{Form, Json, Multipart, Query};
use filoplume::middleware::{Compression, Csrf, CsrfToken, Sessions};
use filoplume::prelude::{App, Body, Html, Result, Router, Session, get};
use filoplume::session::MemoryStore;
use filoplume_runtime::{Metrics, Server, ServerConfig};

use super::crowd::{self, Crowd};
use super::live::Live;
use crate::server::TestServer;
use crate::tls::Authority;

/// The length of the response of `/big`.
const BIG: usize = 4 << 20;

/// The number of routes that differ only by their number.
const NUMBERED: usize = 40;

/// The memory for all sessions, enough for a few hundred.
const SESSIONS_BYTES_MAX: usize = 512 * 1024;

/// How long a call of `/database` takes without an outage.
const QUERY: Duration = Duration::from_millis(10);

/// How long the handlers that compute do so.
const COMPUTES: Duration = Duration::from_millis(20);

/// How long a call of `/database` takes during an outage, unless the outage ends sooner.
const OUTAGE: Duration = Duration::from_secs(5);

/// A server with an app that has every kind of expensive route.
#[derive(Debug)]
pub struct Site {
    server: TestServer,
    waits: Arc<Waits>,
    live: Live,
    authority: Authority,
}

/// Handlers that wait for a time, or until they are released.
#[derive(Debug, Default)]
struct Waits {
    /// Incremented when the handlers are released.
    round: Mutex<u64>,
    changed: Condvar,
    is_outage: AtomicBool,
}

impl Site {
    /// Starts the server.
    #[track_caller]
    pub fn start(config: ServerConfig) -> Self {
        let waits = Arc::new(Waits::default());
        let live = Live::default();
        let app = live.routes(app(&waits)).build().expect("the app has no mistakes");
        let authority = Authority::new();
        let server = Server::builder()
            .bind("127.0.0.1:0")
            .and_then(|builder| {
                builder.bind_tls("127.0.0.1:0", authority.issue("localhost", &["localhost"]).tls())
            })
            .and_then(|builder| builder.config(config).build())
            .expect("there are free ports");
        server.spawn(app).expect("threads for the event loops");
        Self { server: TestServer::of(server), waits, live, authority }
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the address on which it listens for TLS.
    pub fn tls_address(&self) -> SocketAddr {
        self.server.server().local_addrs()[1]
    }

    /// Returns the authority of its certificate.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns its room and its hub.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Returns its metrics.
    pub fn metrics(&self) -> Metrics {
        self.server.metrics()
    }

    /// Connects `count` attackers, or as many as the limit of file descriptors allows. Reports if
    /// these are fewer.
    #[track_caller]
    pub fn attackers(&self, count: usize) -> Crowd {
        Self::attackers_at(self.address(), count)
    }

    /// As [`attackers`](Self::attackers), at the address for TLS.
    #[track_caller]
    pub fn tls_attackers(&self, count: usize) -> Crowd {
        Self::attackers_at(self.tls_address(), count)
    }

    #[track_caller]
    fn attackers_at(address: SocketAddr, count: usize) -> Crowd {
        // Both ends of a connection are in this process, and it needs some descriptors for other
        // purposes.
        let room = descriptors() / 2 - 100;
        if count > room {
            eprintln!("only {room} attackers of {count}: there are too few descriptors");
        }
        Crowd::connect(address, count.min(room))
    }

    /// Connects one more attacker, with a blocking socket whose timeout is the deadline of tests.
    #[track_caller]
    pub fn attacker(&self, index: usize) -> TcpStream {
        Self::attacker_at(self.address(), index)
    }

    /// As [`attacker`](Self::attacker), at the address for TLS.
    #[track_caller]
    pub fn tls_attacker(&self, index: usize) -> TcpStream {
        Self::attacker_at(self.tls_address(), index)
    }

    #[track_caller]
    fn attacker_at(address: SocketAddr, index: usize) -> TcpStream {
        let stream = crowd::connect(address, index);
        stream.set_nonblocking(false).expect("an option of every system");
        stream.set_read_timeout(Some(crate::DEADLINE)).expect("an option of every system");
        stream
    }

    /// Ends all waiting calls of `/slow` and `/database`.
    pub fn let_go(&self) {
        *self.waits.round.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.waits.changed.notify_all();
    }

    /// Starts or ends an outage of `/database`.
    pub fn outage(&self, is_on: bool) {
        self.waits.is_outage.store(is_on, Ordering::SeqCst);
        if !is_on {
            self.let_go();
        }
    }
}

/// Waiting handlers must not delay the end of the server.
impl Drop for Site {
    fn drop(&mut self) {
        self.outage(false);
    }
}

impl Waits {
    fn wait(&self, time: Duration) {
        let round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *round;
        let waited = self.changed.wait_timeout_while(round, time, |round| *round == before);
        drop(waited);
    }
}

/// Returns the maximum number of connections that an engine in this process allows.
fn descriptors() -> usize {
    static DESCRIPTORS: OnceLock<usize> = OnceLock::new();
    *DESCRIPTORS.get_or_init(|| {
        let server = TestServer::start(crate::site);
        usize::try_from(server.metrics().connections_max).unwrap_or(usize::MAX)
    })
}

fn app(waits: &Arc<Waits>) -> App {
    let slow = |waits: &Arc<Waits>| {
        let waits = Arc::clone(waits);
        move |Query(query): Query<HashMap<String, u64>>| {
            waits.wait(Duration::from_millis(query.get("ms").copied().unwrap_or(0)));
            "slow"
        }
    };
    let database = {
        let waits = Arc::clone(waits);
        move || {
            if waits.is_outage.load(Ordering::SeqCst) {
                waits.wait(OUTAGE);
            } else {
                thread::sleep(QUERY);
            }
            "rows"
        }
    };
    let accounts = Router::new()
        .get("/visits", visits)
        .get("/form", |token: CsrfToken| {
            Html(format!("<form method=post>{}</form>", token.field()))
        })
        .post("/form", |Form(fields): Form<HashMap<String, String>>| {
            format!("{} fields", fields.len())
        })
        .with(
            Sessions::new(MemoryStore::new().bytes_max(SESSIONS_BYTES_MAX), Key::generate())
                .secure(false),
        )
        .with(Csrf::new());
    let app = App::new()
        .get("/", || "plain")
        .get("/health", || "healthy")
        .get("/blocking", || {
            thread::sleep(Duration::from_millis(50));
            "blocked"
        })
        .post("/json", |Json(value): Json<serde_json::Value>| Json(value))
        .post("/form", |Form(fields): Form<HashMap<String, String>>| {
            format!("{} fields", fields.len())
        })
        .post("/upload", upload)
        .post("/multipart", multipart)
        .get("/big", big)
        .get("/big/own", || big().to_owned())
        .route("/big/compressed", get(|| noise().to_owned()).with(Compression::new()))
        .get("/brief", || {
            thread::sleep(QUERY);
            "brief"
        })
        .get("/database", database)
        .get("/compute", || {
            let end = Instant::now() + COMPUTES;
            while black_box(Instant::now()) < end {}
            "computed"
        })
        .get("/slow", slow(waits))
        .nest("/account", accounts);
    (0..NUMBERED).fold(app, |app, number| app.get(&format!("/slow/{number}"), slow(waits)))
}

/// Returns the same static bytes each time: the attack is not about how fast a handler allocates
/// them.
fn big() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| "x".repeat(BIG))
}

/// Returns a text that is hardly shorter when it is compressed. Even compressed, it is too long for
/// the buffers of sockets.
fn noise() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut state = 1_u64;
        let letters = (0..2 * BIG).map(|_| {
            // Xorshift, by Marsaglia.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b'0' + u8::try_from(state % 64).unwrap_or_default())
        });
        letters.collect()
    })
}

fn upload(mut body: Body) -> Result<String> {
    let bytes = std::io::copy(&mut body, &mut std::io::sink())?;
    Ok(format!("{bytes} bytes"))
}

fn multipart(mut form: Multipart) -> Result<String> {
    let mut fields = 0;
    while let Some(field) = form.next_field()? {
        field.bytes()?;
        fields += 1;
    }
    Ok(format!("{fields} fields"))
}

#[expect(clippy::needless_pass_by_value, reason = "a handler is given its parameters")]
fn visits(session: Session) -> Result<String> {
    let visits = session.get::<u32>("visits")?.unwrap_or(0) + 1;
    session.insert("visits", visits)?;
    Ok(format!("visit {visits}"))
}
