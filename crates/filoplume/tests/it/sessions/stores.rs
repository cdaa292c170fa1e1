//! Session stores: when they are called, and what is special about SQLite and Redis.

use super::*;

/// A store that counts its calls, and fails on demand.
#[derive(Default)]
struct Counting {
    inner: MemoryStore,
    loads: AtomicUsize,
    writes: AtomicUsize,
    fails_to_load: AtomicBool,
    fails_to_write: AtomicBool,
}

impl Counting {
    fn write(&self) -> Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        match self.fails_to_write.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("the disk is full of secrets").into()),
            false => Ok(()),
        }
    }
}

impl SessionStore for Counting {
    fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        match self.fails_to_load.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("the disk is full of secrets").into()),
            false => self.inner.load(id),
        }
    }

    fn insert(&self, id: &str, record: &[u8], keep_for: Duration) -> Result<()> {
        self.write()?;
        self.inner.insert(id, record, keep_for)
    }

    fn replace(&self, id: &str, old: &[u8], new: &[u8], keep_for: Duration) -> Result<bool> {
        self.write()?;
        self.inner.replace(id, old, new, keep_for)
    }

    fn remove(&self, id: &str) -> Result<()> {
        self.write()?;
        self.inner.remove(id)
    }
}

#[test]
fn a_store_is_read_and_written_only_if_necessary() {
    let store = Arc::new(Counting::default());
    let client = app(Sessions::new(Arc::clone(&store), key())).test();
    let counts =
        || (store.loads.swap(0, Ordering::Relaxed), store.writes.swap(0, Ordering::Relaxed));
    client.get("/").send();
    assert_eq!(counts(), (0, 0), "a client without a cookie has no session");
    client.put("/color/red").send();
    assert_eq!(counts(), (0, 1));
    client.get("/plain").send();
    assert_eq!(counts(), (0, 0), "no handler uses it");
    client.get("/color").send();
    assert_eq!(counts(), (1, 0), "it is only read");
    client.put("/color/red").send();
    assert_eq!(counts(), (1, 0), "it is the same");
    client.put("/color/blue").send().assert_no_header("set-cookie");
    assert_eq!(counts(), (1, 1));
    client.post("/login/ada").send();
    assert_eq!(counts(), (1, 3), "the old one is claimed, the new one kept, the old one removed");
    client.post("/logout").send();
    assert_eq!(counts(), (1, 1));
}

#[test]
fn a_failing_store_is_a_500_without_details() {
    let store = Arc::new(Counting::default());
    let client = app(Sessions::new(Arc::clone(&store), key())).test();
    client.put("/color/red").send().assert_status(200);
    store.fails_to_write.store(true, Ordering::Relaxed);
    for answer in [
        client.put("/color/blue").send(),
        client.post("/logout").send(),
        client.post("/login/a").send(),
    ] {
        answer.assert_status(500).assert_no_header("set-cookie");
        assert!(!answer.text().contains("secrets"), "{answer:?}");
    }
    client.get("/color").send().assert_text("Some(\"red\")");
    store.fails_to_load.store(true, Ordering::Relaxed);
    client.get("/color").send().assert_status(500);
    client.get("/plain").send().assert_status(200);
}

#[test]
fn the_contents_of_the_file_cannot_be_used_as_a_cookie() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("sessions.db");
    let client =
        app(Sessions::new(SqliteStore::open(&file).expect("it can be opened"), key())).test();
    client.post("/login/ada").send().assert_status(200);
    let cookie = client.cookie(NAME).expect("it is set");
    // The token follows the signature.
    let token = &cookie[cookie.len() - 43..];
    let bytes: Vec<u8> = ["sessions.db", "sessions.db-wal"]
        .iter()
        .filter_map(|name| std::fs::read(folder.path().join(name)).ok())
        .flatten()
        .collect();
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("filoplume_sessions") && has("ada") && !has(token));
}

#[test]
fn expired_sessions_are_swept_from_the_file() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = SqliteStore::open(folder.path().join("sessions.db")).expect("it can be opened");
    store.insert("alive", b"1", Duration::from_secs(60)).expect("it can be written");
    store.insert("long", b"1", Duration::MAX).expect("it can be written");
    store.insert("over", b"1", Duration::ZERO).expect("it can be written");
    assert_eq!(store.load("over").expect("it can be read"), None);
    assert!(
        !store.replace("over", b"1", b"2", Duration::from_secs(60)).expect("it can be written")
    );
    assert_eq!(store.sweep().expect("it can be written"), 1);
    assert_eq!(store.sweep().expect("it can be written"), 0);
    assert!(store.load("alive").expect("it can be read").is_some());
    assert!(store.load("long").expect("it can be read").is_some());
    assert!(SqliteStore::open(folder.path()).is_err(), "a folder is not a file");
}

#[test]
fn redis_has_no_ids() {
    let Some(redis) = Redis::start() else { return };
    let client = app(Sessions::new(redis_store(&redis).prefix("shop:"), key())).test();
    client.post("/login/ada").send().assert_status(200);
    let cookie = client.cookie(NAME).expect("it is set");
    let ids = redis.ask("KEYS *");
    assert!(ids.contains("shop:") && !ids.contains(&cookie[cookie.len() - 43..]), "{ids}");
}

/// Returns the number of seconds after which Redis removes the only session.
pub(super) fn seconds_left(redis: &Redis) -> u64 {
    let ids = redis.ask("KEYS *");
    let id = ids.lines().find(|line| line.starts_with("filoplume:")).expect("there is one");
    let left = redis.ask(&format!("TTL {id}"));
    left.trim_start_matches(':').trim().parse().expect("it is a number")
}

#[test]
fn redis_keeps_a_session_for_an_hour_until_it_is_presented() {
    let Some(redis) = Redis::start() else { return };
    let (hour, day) = (3500..=3600, 86_000..=86_400);
    let client = app(Sessions::new(redis_store(&redis), key())).test();
    client.put("/color/red").send().assert_status(200);
    assert!(hour.contains(&seconds_left(&redis)));
    // A request that only reads the session is enough to extend it.
    client.get("/color").send().assert_text("Some(\"red\")");
    assert!(day.contains(&seconds_left(&redis)));
    redis.ask("FLUSHALL");

    client.post("/subject/ada").send().assert_status(200);
    assert!(day.contains(&seconds_left(&redis)), "a login has its whole time at once");
    redis.ask("FLUSHALL");

    let sessions = Sessions::new(redis_store(&redis), key()).idle_timeout(Duration::from_secs(60));
    let client = app(sessions).test();
    client.put("/color/red").send().assert_status(200);
    client.get("/color").send().assert_text("Some(\"red\")");
    assert!((1..=60).contains(&seconds_left(&redis)), "a shorter lifetime stays");
}

#[test]
fn a_flood_of_visitors_who_come_back_ends_no_login() {
    let memory = MemoryStore::new().bytes_max(50 * 512);
    let sqlite = SqliteStore::open(":memory:").expect("it needs no disk").sessions_max(50);
    let stores: [Arc<dyn SessionStore>; 2] = [Arc::new(memory), Arc::new(sqlite)];
    for store in stores {
        let app = app(Sessions::new(store, key())).test();
        // This user pauses during the flood.
        app.post("/subject/ada").send().assert_status(200);
        let cookie = app.cookie(NAME).expect("it is set");
        let visitor = app.without_cookies();
        for _ in 0..200 {
            let begun = visitor.put("/color/red").send();
            let presented = begun.cookie(NAME).expect("it is set");
            visitor.get("/color").cookie(NAME, presented).send().assert_text("Some(\"red\")");
        }
        visitor.get("/subject").cookie(NAME, &cookie).send().assert_text("Some(\"ada\")");
    }
}

#[test]
fn broken_connections_to_redis_are_replaced() {
    let Some(mut redis) = Redis::start() else { return };
    let client = app(Sessions::new(redis_store(&redis), key())).test();
    client.put("/color/red").send().assert_status(200);
    // The server closes its connections, and the store does not know yet.
    redis.ask("CLIENT KILL TYPE normal SKIPME yes");
    client.get("/color").send().assert_text("Some(\"red\")");
    redis.stop();
    let begun = Instant::now();
    let refused = client.get("/color").send();
    refused.assert_status(503);
    assert!(!refused.text().contains("127.0.0.1"), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    redis.restart();
    client.get("/color").send().assert_status(200);
    client.put("/color/blue").send().assert_status(200);
    client.get("/color").send().assert_text("Some(\"blue\")");
}

#[test]
fn a_redis_that_is_full_is_a_503() {
    let Some(redis) = Redis::start() else { return };
    let client = app(Sessions::new(redis_store(&redis), key())).test();
    client.put("/color/red").send().assert_status(200);
    redis.ask("CONFIG SET maxmemory 1");
    client.get("/color").send().assert_text("Some(\"red\")");
    // The first request runs a script, and the second one a command.
    client.put("/color/blue").send().assert_status(503);
    client.post("/login/ada").send().assert_status(503);
    redis.ask("CONFIG SET maxmemory 0");
    client.put("/color/blue").send().assert_status(200);
}

#[test]
fn a_redis_that_is_slow_is_a_503_that_names_it_to_the_log_only() {
    let Some(redis) = Redis::start() else { return };
    let timeout = Duration::from_millis(700);
    let store = redis_store(&redis).timeout(timeout);
    let sessions = app(Sessions::new(redis_store(&redis).timeout(timeout), key())).test();
    sessions.put("/color/red").send().assert_status(200);
    sessions.get("/color").send().assert_status(200);
    store.load("any").expect("it answers");
    redis.signal("STOP");
    let begun = Instant::now();
    let error = store.load("any").expect_err("it is stopped");
    assert!(begun.elapsed() < timeout * 2, "it is asked once: {:?}", begun.elapsed());
    let refused = sessions.get("/color").send();
    redis.signal("CONT");
    refused.assert_status(503);
    assert!(!refused.text().contains("127.0.0.1"), "{refused:?}");
    let because = error.source().expect("the cause is kept");
    let expected =
        format!("the session store, Redis at {}, did not answer within 700ms", redis.address());
    assert_eq!(because.to_string(), expected);
    assert!(because.source().is_some(), "and its own cause");
}

/// Otherwise each request would keep a thread for the whole timeout.
#[test]
fn one_request_at_a_time_waits_for_a_redis_that_hangs() {
    const THREADS: usize = 8;
    const LOADS: usize = 10;
    let Some(redis) = Redis::start() else { return };
    let timeout = Duration::from_millis(700);
    let store = redis_store(&redis).timeout(timeout);
    redis.signal("STOP");
    let waited: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let load = |_: &usize| {
                        let begun = Instant::now();
                        assert!(store.load("any").is_err(), "it is stopped");
                        begun.elapsed() >= timeout
                    };
                    (0..LOADS).filter(load).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    });
    redis.signal("CONT");
    // Each thread may wait with its first request. After that, threads wait one after the other.
    assert!(waited < THREADS + 2 * LOADS, "{waited} of {} have waited", THREADS * LOADS);
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(error) = store.load("any") {
        assert!(Instant::now() < end, "it answers again: {error}");
    }
}

#[test]
fn a_redis_that_never_answers_is_an_error_after_the_timeout() {
    // This server accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = silent.local_addr().expect("it has an address").port();
    let begun = Instant::now();
    let error = RedisStore::connect(&format!("redis://user:s3cret@127.0.0.1:{port}/")).map(drop);
    let error = format!("{:?}", error.expect_err("it does not answer"));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!error.contains("s3cret"), "{error}");
    let error = format!(
        "{:?}",
        RedisStore::connect("http://:s3cret@host").map(drop).expect_err("it is not a URL")
    );
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn signatures_for_other_purposes_are_not_valid_for_sessions() {
    let client = App::new()
        .get("/forge", |cookies: Cookies| cookies.signed(&key()).set(NAME, "A".repeat(43)))
        .get("/seal", |cookies: Cookies| {
            cookies.encrypted(&key()).set(NAME, r#"[1,0,99999999999,{"user":"root"}]"#);
        })
        .test();
    let attacker = app(Sessions::in_cookie(key())).test();
    let sealed = client.get("/seal").send();
    attacker.set_cookie(NAME, sealed.cookie(NAME).expect("it is set"));
    attacker.get("/").send().assert_text("None");
    let store = Arc::new(Counting::default());
    let attacker = app(Sessions::new(Arc::clone(&store), key())).test();
    let forged = client.get("/forge").send();
    attacker.set_cookie(NAME, forged.cookie(NAME).expect("it is set"));
    attacker.get("/").send().assert_text("None");
    assert_eq!(
        store.loads.load(Ordering::Relaxed),
        0,
        "the store is not called for an unsigned ID"
    );
}
