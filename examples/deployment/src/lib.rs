//! A whole app as it runs in production: two instances behind haproxy that share PostgreSQL, Redis
//! and a folder. README.md says how to start it, and what happens when a part of it is away.
//!
//! - `database` has the pool, the migrations, and a transaction per request.
//! - `accounts` with `passwords`, `notes`, `uploads` and `pages` are the app.
//! - `stack` starts everything on this machine, for `deployment up` and for the tests.

mod accounts;
mod database;
pub mod exercise;
mod notes;
mod pages;
mod passwords;
mod schema;
pub mod stack;
mod uploads;

use std::path::PathBuf;
use std::time::Duration;
use std::{env, io};

use filoplume::instances::RedisChannel;
use filoplume::middleware::{
    Incoming, Logger, RateLimit, RequestIds, SecurityHeaders, Sessions, Tracing,
};
use filoplume::prelude::*;
use filoplume::session::RedisStore;
use filoplume::sse::Hub;
use filoplume::{Console, Key, Result};

use self::database::{Database, Transactions};
use self::exercise::Plant;
use self::uploads::Folder;

/// The requests per second of each client to the API, on all instances together.
pub const API_RATE: u32 = 50;

/// Redis answers in less than a millisecond. A page that needs a session fails after this time.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// How long `/ready` waits for the database. It has to be less than the time that haproxy waits for
/// `/ready`, which is its interval of 200 ms. Otherwise a silent database would make both instances
/// seem dead.
const CHECK_TIMEOUT: Duration = Duration::from_millis(100);

/// What an instance reads from its environment.
#[derive(Debug)]
pub struct Settings {
    /// The name of the instance, which is sent in the response header `x-instance`.
    pub name: String,
    /// `DATABASE_URL`
    pub database: String,
    /// `REDIS_URL`
    pub redis: String,
    /// `UPLOADS`: the folder with the uploads, which all instances share.
    pub uploads: PathBuf,
    /// `LAME_DUCK_MILLISECONDS`: how long the instance answers after SIGTERM, so that haproxy
    /// learns of it.
    pub lame_duck: Duration,
    /// `TRUSTED_PROXIES`: the addresses and networks from which `X-Forwarded-For` is believed,
    /// separated by commas. Without the variable, the addresses of this machine are trusted. With
    /// an empty one, none are.
    pub proxies: Vec<String>,
    /// `CONSOLE`: the address of the console, for browsers of this machine. Without the variable
    /// there is no console.
    pub console: Option<String>,
    /// `METRICS`: an address of its own for `/metrics`. Without the variable, `/metrics` is at the
    /// address of the app.
    pub metrics: Option<String>,
    /// `PLANT`: the problem that is planted in the app, to be found as an exercise.
    pub plant: Option<Plant>,
}

/// haproxy runs on the machine of the instances, unless the environment says otherwise.
const LOOPBACK: &str = "127.0.0.1, ::1";

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// If a variable is missing or invalid.
    pub fn from_environment() -> Result<Self> {
        let read = |name: &'static str| {
            env::var(name).map_err(|_| Error::bad_request(format!("set the variable {name}")))
        };
        let proxies = env::var("TRUSTED_PROXIES").unwrap_or_else(|_| LOOPBACK.to_owned());
        let proxies = proxies.split(',').map(str::trim).filter(|proxy| !proxy.is_empty());
        Ok(Self {
            name: read("INSTANCE")?,
            database: read("DATABASE_URL")?,
            redis: read("REDIS_URL")?,
            uploads: read("UPLOADS")?.into(),
            lame_duck: Duration::from_millis(read("LAME_DUCK_MILLISECONDS")?.parse()?),
            proxies: proxies.map(str::to_owned).collect(),
            console: env::var("CONSOLE").ok(),
            metrics: env::var("METRICS").ok(),
            plant: Plant::from_environment()?,
        })
    }
}

/// Serves an instance until SIGTERM. The key of the sessions is in `SECRET_KEY`.
///
/// # Errors
///
/// If the database or Redis is away, a migration fails, or the address cannot be bound.
pub fn serve(address: &str, settings: Settings) -> Result<()> {
    // Requests are logged to stdout. Slow, refused and stuck requests and errors are reported to
    // stderr.
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    app(settings, Key::from_env("SECRET_KEY")?)?.listen(address)
}

fn app(settings: Settings, key: Key) -> Result<App> {
    let Settings { name, database, redis, uploads, lame_duck, proxies, console, metrics, plant } =
        settings;
    let database = Database::open(&database, &name)?;
    database.migrate()?;
    let hub = Hub::new().replay(100).joined(&RedisChannel::new(&redis, "deployment-feed")?);
    let store = RedisStore::connect(&redis)?.timeout(REDIS_TIMEOUT);
    // haproxy speaks HTTP here. If clients reach it over TLS, leave `secure` out.
    let sessions = Sessions::new(store, key).secure(false);
    let limit = RateLimit::per_second(API_RATE).name("api").redis(&*redis);
    let api = Router::new()
        .merge(notes::router().with(database.permits().clone()))
        // Requests that compute hashes or wait for slow uploads must not hold the permits of the
        // database.
        .merge(accounts::router())
        .merge(uploads::router(Folder::open(uploads)?))
        .with(Transactions::new(database.clone()))
        .with(limit);
    let pages = pages::router(&database);
    let ping = {
        let database = database.clone();
        move || database.ping()
    };
    // The database is shared by all instances. If its check were required, no instance would be
    // ready without it, and clients would see the error page of haproxy in place of ours.
    let health = Health::new().optional_check("database", CHECK_TIMEOUT, ping);
    let planted = plant.map_or_else(Router::new, |_| exercise::router(&database));
    let app = App::new()
        .merge(pages)
        .merge(planted)
        .nest("/api", api)
        .get("/feed", notes::feed)
        .state(hub)
        .state(pages::templates()?)
        .health(health)
        .with(RequestIds::new())
        // haproxy has made the trace, or taken over the one of a client.
        .with(Tracing::new().incoming(Incoming::Continue))
        .with(Logger::new().json().without_query())
        .with(move |request: Request, next: Next| {
            let mut response = next.run(request);
            response.set_header("x-instance", &name)?;
            Ok::<_, Error>(response)
        })
        .with(SecurityHeaders::new())
        .with(sessions)
        .trust_proxies(proxies)
        .config(ServerConfig::behind_proxy().lame_duck(lame_duck));
    let app = match metrics {
        Some(address) => app.metrics_on(address, "/metrics"),
        None => app.metrics("/metrics"),
    };
    Ok(match console {
        // This address is not behind haproxy, and answers while all connections of the app are in
        // use.
        Some(address) => app.console("/console", Console::local().address(address)),
        None => app,
    })
}
