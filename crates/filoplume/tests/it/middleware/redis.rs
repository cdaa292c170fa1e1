//! Rate limits that several instances share.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use filoplume::middleware::{RateLimit, RedisCounters, WhenRedisFails};
use filoplume::prelude::*;
use filoplume::testing::TestClient;
use harness::Redis;

/// A little longer than the pause after a failure of Redis.
const PAUSE: Duration = Duration::from_secs(60);
/// A period in which no token returns, however slow the machine is.
const HOUR: Duration = Duration::from_secs(3600);

/// Returns counters with a long timeout, for machines under load.
fn patient(server: &Redis) -> RedisCounters {
    RedisCounters::new(server.url()).timeout(Duration::from_secs(30))
}

fn instance(limit: RateLimit) -> TestClient {
    App::new().get("/", || "hi").with(limit).test()
}

fn status(client: &TestClient) -> u16 {
    client.get("/").send().status().as_u16()
}

#[test]
fn instances_share_one_bucket() {
    let Some(server) = Redis::start() else { return };
    let limit = || RateLimit::per(6, HOUR).burst(3).redis(patient(&server));
    let (first, second) = (instance(limit()), instance(limit()));
    first
        .get("/")
        .send()
        .assert_header("x-ratelimit-remaining", "2")
        .assert_header("x-ratelimit-reset", "600");
    second.get("/").send().assert_header("x-ratelimit-remaining", "1");
    assert_eq!((status(&first), status(&second), status(&first)), (200, 429, 429));
    let refused = second.get("/").send();
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((540..=600).contains(&wait), "{refused:?}");
    // Another name or another rate has another bucket.
    assert_eq!(status(&instance(limit().name("search"))), 200);
    assert_eq!(status(&instance(RateLimit::per(7, HOUR).burst(3).redis(patient(&server)))), 200);
    // A bucket that is full again is removed.
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("filoplume:rate:*").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 3, "{keys:?}");
    for key in keys {
        let expires: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        assert!((1..=1_800_000).contains(&expires), "{key} in {expires}");
    }
}

#[test]
fn instances_share_the_bucket_of_an_ipv6_network() {
    let Some(server) = Redis::start() else { return };
    let limit = || RateLimit::per(1, HOUR).redis(patient(&server));
    let instances = [instance(limit()), instance(limit())];
    let allowed = (0..20_u16).filter(|&number| {
        let peer = SocketAddr::from(([0x2001, 0xdb8, 0, number, 0, 0, 0, 1], 1));
        instances[usize::from(number % 2)].get("/").peer(peer).send().status() == 200
    });
    assert_eq!(allowed.count(), 8);
}

#[test]
fn tokens_return_by_the_clock_of_redis() {
    let Some(server) = Redis::start() else { return };
    let client = instance(RateLimit::per_second(20).burst(1).redis(patient(&server)));
    assert_eq!(status(&client), 200);
    let deadline = Instant::now() + Duration::from_secs(30);
    while status(&client) != 200 {
        assert!(Instant::now() < deadline, "no token has returned");
        std::thread::yield_now();
    }
}

#[test]
fn many_threads_of_several_instances_count_exactly() {
    let Some(server) = Redis::start() else { return };
    let allowed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let client = instance(RateLimit::per(40, HOUR).redis(patient(&server)));
                scope.spawn(move || (0..25).filter(|_| status(&client) == 200).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(allowed, 40);
}

#[test]
fn hostile_keys_are_only_keys() {
    let Some(server) = Redis::start() else { return };
    let limit = RateLimit::per(1, HOUR).redis(patient(&server));
    let client = instance(limit.key(|request| request.header("x-user").map(str::to_owned)));
    let ask = |user: &str| client.get("/").header("x-user", user).send().status().as_u16();
    for hostile in ["a b", "*", "]]; redis.call('FLUSHALL')", "'\"\\", &"x".repeat(5000)] {
        assert_eq!((ask(hostile), ask(hostile)), (200, 429), "{hostile}");
    }
}

#[test]
fn redis_is_used_again_after_a_restart() {
    let Some(server) = Redis::start() else { return };
    let address = server.address();
    let counters = patient(&server).when_it_fails(WhenRedisFails::Refuse);
    let client = instance(RateLimit::per(1, HOUR).redis(counters));
    assert_eq!((status(&client), status(&client)), (200, 429));
    // After a restart, connections are closed, and script and counts are lost. Requests still work.
    drop(server);
    let Some(server) = Redis::start_at(address) else { return };
    assert_eq!((status(&client), status(&client)), (200, 429));
    // Only the script is lost.
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
    assert_eq!(status(&client), 429);
    drop(connection);
    drop(server);
    client.get("/").send().assert_status(503).assert_header("retry-after", "1");
    let Some(_server) = Redis::start_at(address) else { return };
    let deadline = Instant::now() + PAUSE;
    while status(&client) == 503 {
        assert!(Instant::now() < deadline, "Redis is not asked again");
        std::thread::yield_now();
    }
    assert_eq!(status(&client), 429);
}

#[test]
fn the_program_decides_what_happens_without_redis() {
    let url = format!("redis://{}/", harness::free_address());
    let limit =
        |fails| RateLimit::per(1, HOUR).redis(RedisCounters::new(&url).when_it_fails(fails));
    let allow = instance(limit(WhenRedisFails::Allow));
    assert_eq!((status(&allow), status(&allow)), (200, 200));
    let refuse = instance(limit(WhenRedisFails::Refuse));
    assert_eq!((status(&refuse), status(&refuse)), (503, 503));
    let count = instance(limit(WhenRedisFails::CountHere));
    assert_eq!((status(&count), status(&count)), (200, 429));
}

#[test]
fn a_redis_that_never_answers_delays_requests_only_briefly() {
    // The kernel accepts the connection, and no process ever answers it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    let counters = RedisCounters::new(url)
        .timeout(Duration::from_millis(100))
        .when_it_fails(WhenRedisFails::Allow);
    let client = instance(RateLimit::per(1, HOUR).redis(counters));
    let started = Instant::now();
    for _ in 0..200 {
        assert_eq!(status(&client), 200);
    }
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "not each request waits: {:?}",
        started.elapsed()
    );
}
