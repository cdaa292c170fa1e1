//! Limits on concurrency, rate, and time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use filoplume::middleware::{ConcurrencyLimit, RateLimit, TimeLeft, TimeoutBudget};
use filoplume::prelude::*;
use filoplume::response::Reader;
use filoplume::testing::TestResponse;
use parking_lot::Mutex;

use super::ask;
use super::logger::Sink;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const PEER: &str = "192.0.2.1:1";
/// A period in which no token returns, however slow the machine is.
const HOUR: Duration = Duration::from_secs(3600);

/// Returns a handler that reports when it is called, and waits for a signal to answer.
fn blocking() -> (impl Fn() -> &'static str + Send + Sync + 'static, Receiver<()>, Sender<()>) {
    let (entered, is_entered) = channel();
    let (answer, may_answer) = channel();
    let may_answer = Mutex::new(may_answer);
    let handler = move || {
        entered.send(()).unwrap();
        may_answer.lock().recv_timeout(Duration::from_secs(60)).unwrap();
        "answered"
    };
    (handler, is_entered, answer)
}

#[test]
fn a_request_over_the_limit_is_refused_at_once() {
    let (handler, is_entered, answer) = blocking();
    let limit = ConcurrencyLimit::new(1).retry_after(Duration::from_millis(1500));
    let app = App::new().route("/", get(handler).with(limit)).get("/other", || "free");
    let app = app.development(true);
    let service = app.build().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&service, PEER, GET));
        is_entered.recv().unwrap();
        let refused = ask(&service, PEER, GET);
        assert!(
            refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 2\r\n"),
            "{refused}"
        );
        assert!(
            refused.contains(
                "ConcurrencyLimit: 1 requests are being answered, its maximum; the responses of 0"
            ),
            "{refused}"
        );
        assert!(ask(&service, PEER, "GET /other HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("free"));
        answer.send(()).unwrap();
        assert!(first.join().unwrap().ends_with("answered"));
        answer.send(()).unwrap();
        assert!(ask(&service, PEER, GET).ends_with("answered"), "its place is free again");
    });
}

#[test]
fn one_client_cannot_use_all_permits() {
    let (handler, is_entered, answer) = blocking();
    let limit = ConcurrencyLimit::new(10).per_client(1);
    let service = App::new().get("/", handler).with(limit).build().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&service, PEER, GET));
        is_entered.recv().unwrap();
        let refused = ask(&service, "[64:ff9b::192.0.2.1]:2", GET);
        assert!(
            refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1\r\n"),
            "{refused}"
        );
        let other = scope.spawn(|| ask(&service, "[64:ff9b::192.0.2.2]:1", GET));
        is_entered.recv_timeout(Duration::from_secs(60)).unwrap();
        answer.send(()).unwrap();
        answer.send(()).unwrap();
        for thread in [first, other] {
            assert!(thread.join().unwrap().ends_with("answered"));
        }
        answer.send(()).unwrap();
        assert!(ask(&service, PEER, GET).ends_with("answered"), "its place is free again");
    });
}

#[test]
fn a_waiting_request_runs_when_another_one_ends() {
    let (handler, is_entered, answer) = blocking();
    let app = App::new()
        .get("/", handler)
        .with(ConcurrencyLimit::new(1).wait(Duration::from_secs(120), 1));
    let service = app.build().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&service, PEER, GET));
        is_entered.recv().unwrap();
        let second = scope.spawn(|| ask(&service, PEER, GET));
        answer.send(()).unwrap();
        // Much sooner than its timeout, at which it would be answered too.
        is_entered.recv_timeout(Duration::from_secs(30)).unwrap();
        answer.send(()).unwrap();
        for thread in [first, second] {
            assert!(thread.join().unwrap().ends_with("answered"));
        }
    });
}

#[test]
fn errors_and_panics_release_their_permit() {
    let app = App::new()
        .get("/panic", || -> &str { panic!("oh") })
        .get("/error", || -> Result<()> { Err(Error::conflict("no")) })
        .with(ConcurrencyLimit::new(1));
    let client = app.test();
    for _ in 0..3 {
        client.get("/panic").send().assert_status(500);
        client.get("/error").send().assert_status(409);
    }
}

#[test]
fn a_stream_holds_its_permit_until_it_is_sent() {
    /// Sends another request to the app while this response is being sent.
    struct Asking(Arc<Mutex<Option<filoplume::AppService>>>, Option<u8>);
    impl Read for Asking {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.1.take().is_none() {
                return Ok(0);
            }
            let service = self.0.lock().clone().unwrap();
            let status = ask(&service, PEER, GET);
            buffer[..3].copy_from_slice(&status.as_bytes()[9..12]);
            Ok(3)
        }
    }
    let shared = Arc::new(Mutex::new(None));
    let app = Arc::clone(&shared);
    let handler = move || Reader::new(Asking(Arc::clone(&app), Some(1)));
    let service = App::new().get("/", handler).with(ConcurrencyLimit::new(1)).build().unwrap();
    *shared.lock() = Some(service.clone());
    for _ in 0..2 {
        let answer = ask(&service, PEER, GET);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\r\n503\r\n"), "{answer}");
    }
    *shared.lock() = None;
}

#[test]
fn a_stream_whose_client_disconnects_releases_its_permit() {
    let endless = || Reader::new(io::repeat(b'a'));
    let limited =
        Router::new().get("/", || "free").get("/endless", endless).with(ConcurrencyLimit::new(1));
    let app = App::new().nest("/limited", limited).start("127.0.0.1:0").unwrap();
    let ask = |path: &str| {
        let mut socket = TcpStream::connect(app.local_addr()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut status = [0; 12];
        socket.read_exact(&mut status).unwrap();
        (socket, String::from_utf8_lossy(&status[9..]).into_owned())
    };
    let (socket, status) = ask("/limited/endless");
    assert_eq!(status, "200");
    assert_eq!(ask("/limited").1, "503");
    drop(socket);
    let deadline = Instant::now() + Duration::from_secs(60);
    while ask("/limited").1 != "200" {
        assert!(Instant::now() < deadline, "the place is never given back");
    }
}

#[test]
fn each_client_has_its_own_rate() {
    let service =
        App::new().get("/", || "hi").with(RateLimit::per(1, HOUR).burst(2)).build().unwrap();
    for (peer, statuses) in [
        ("192.0.2.1:1", ["200", "200", "429"]),
        ("192.0.2.2:1", ["200", "200", "429"]),
        ("[2001:db8::1]:1", ["200", "200", "429"]),
        ("[2001:db8:0:1::1]:1", ["200", "200", "429"]),
        ("[64:ff9b::192.0.2.3]:1", ["200", "200", "429"]),
        ("[64:ff9b::192.0.2.4]:1", ["200", "200", "429"]),
    ] {
        for status in statuses {
            assert_eq!(&ask(&service, peer, GET)[9..12], status, "{peer}");
        }
    }
    for same in [
        "192.0.2.1:2",
        "[::ffff:192.0.2.1]:3",
        "[64:ff9b::192.0.2.1]:4",
        "192.0.2.3:2",
        "[2001:db8::ffff:1]:1",
    ] {
        assert_eq!(&ask(&service, same, GET)[9..12], "429", "{same}");
    }
}

#[test]
fn clients_behind_a_proxy_are_distinguished_only_if_it_is_trusted() {
    let app = || App::new().get("/", || "hi").with(RateLimit::per(1, HOUR));
    let statuses = |app: App| {
        let service = app.build().unwrap();
        ["198.51.100.1", "198.51.100.2", "198.51.100.1"].map(|client| {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n");
            ask(&service, "10.0.0.7:4711", &request)[9..12].to_owned()
        })
    };
    assert_eq!(statuses(app().trust_proxies(["10.0.0.0/8"])), ["200", "200", "429"]);
    assert_eq!(
        statuses(app()),
        ["200", "429", "429"],
        "a client that invents addresses is still one client"
    );
}

#[test]
fn headers_show_what_is_left_and_when_to_try_again() {
    let client = App::new().get("/", || "hi").with(RateLimit::per(6, HOUR).burst(2)).test();
    let first = client.get("/").send();
    first.assert_status(200).assert_header("x-ratelimit-limit", "2");
    first.assert_header("x-ratelimit-remaining", "1").assert_header("x-ratelimit-reset", "600");
    client.get("/").send().assert_header("x-ratelimit-remaining", "0");
    let refused = client.get("/").send();
    refused.assert_status(429).assert_header("x-ratelimit-remaining", "0");
    let wait =
        |refused: &TestResponse| refused.header("retry-after").unwrap().parse::<u64>().unwrap();
    assert!((540..=600).contains(&wait(&refused)), "{refused:?}");
    let uneven = App::new().get("/", || "hi").with(RateLimit::per(2, Duration::from_secs(3)));
    uneven.test().get("/").send().assert_header("x-ratelimit-reset", "2");
    let quiet = App::new().get("/", || "hi").with(RateLimit::per(1, HOUR).without_headers()).test();
    assert!(quiet.get("/").send().header("x-ratelimit-limit").is_none());
    let refused = quiet.get("/").send();
    assert!((3540..=3600).contains(&wait(refused.assert_status(429))), "{refused:?}");
}

/// Developers and the log learn which limit refused the request. A key may be a secret, and is
/// shown to neither.
#[test]
fn a_refusal_names_the_limit_in_development_and_in_the_log() {
    const LIMIT: &str = "RateLimit `mail`: the client has used up its limit of a request every \
                         600s, in bursts of 1";
    for is_development in [true, false] {
        let log = Sink::default();
        let limit =
            RateLimit::per(6, HOUR).burst(1).name("mail").key(|_| Some("s3cret".to_owned()));
        let app = App::new().development(is_development).get("/", || "sent");
        let app = app.with(middleware::Logger::new().json().to(log.clone())).with(limit);
        let service = app.build().unwrap();
        assert!(ask(&service, PEER, GET).ends_with("sent"));
        let refused = ask(&service, PEER, GET);
        assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
        assert_eq!(refused.contains(LIMIT), is_development, "{refused}");
        assert!(log.text().contains(LIMIT) && !log.text().contains("s3cret"), "{}", log.text());
    }
}

#[test]
fn the_key_identifies_clients_and_otherwise_the_address_does() {
    let limit = RateLimit::per(1, HOUR).key(|request| request.header("x-user").map(str::to_owned));
    let client = App::new().get("/", || "hi").with(limit).test();
    let ask = |user: &str| client.get("/").header("x-user", user).send().status().as_u16();
    assert_eq!((ask("ada"), ask("ada"), ask("bob")), (200, 429, 200));
    assert_eq!(client.get("/").send().status(), 200);
    assert_eq!(client.get("/").send().status(), 429);
    assert_eq!(ask("127.0.0.1"), 200, "a key is never an address");
    let long = "ä".repeat(2000);
    assert_eq!((ask(&long), ask(&format!("{long}x"))), (200, 429), "the first 256 bytes count");
}

/// An IPv6 network of 48 bits has 65,536 clients.
#[test]
fn an_ipv6_network_has_eight_times_the_limit_of_a_client() {
    let limit = || RateLimit::per(1, HOUR).burst(2);
    let app = App::new().development(true).get("/", || "hi").with(limit());
    let service = app.build().unwrap();
    let allowed = |network: &str, clients: u32| {
        let peers = (0..clients).map(|client| format!("[{network}:{client:x}::1]:1"));
        peers.filter(|peer| ask(&service, peer, GET)[9..12] == *"200").count()
    };
    assert_eq!(allowed("2001:db8:a", 3000), 16);
    assert_eq!(allowed("2001:db8:b", 10), 10, "another network has its own bucket");
    // Requests that the client's own limit refuses take no token of its network.
    let spam = (0..100).filter(|_| ask(&service, "[2001:db8:c::1]:1", GET)[9..12] == *"200");
    assert_eq!(spam.count(), 2);
    assert_eq!(allowed("2001:db8:c", 30), 14, "the first client has none");
    let refused = ask(&service, "[2001:db8:a:ffff::1]:1", GET).to_ascii_lowercase();
    // A token of the network returns after 450 seconds.
    for part in ["retry-after: 4", "x-ratelimit-remaining: 0", "the ipv6 network of the client"] {
        assert!(refused.contains(part), "{refused}");
    }
    for last in 0..100 {
        let peer = format!("192.0.2.{last}:1");
        assert_eq!(&ask(&service, &peer, GET)[9..12], "200", "IPv4 clients have no network");
    }
    let by_key = limit().key(|request| request.header("x-user").map(str::to_owned));
    let service = App::new().get("/", || "hi").with(by_key).build().unwrap();
    for user in 0..100 {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n");
        assert_eq!(&ask(&service, "[2001:db8::1]:1", &request)[9..12], "200");
    }
}

#[test]
fn the_limit_that_refuses_sets_the_headers() {
    let app = App::new()
        .route("/", get(|| "hi").with(RateLimit::per(5, HOUR)))
        .with(RateLimit::per(2, HOUR));
    let client = app.test();
    client
        .get("/")
        .send()
        .assert_header("x-ratelimit-limit", "5")
        .assert_header("x-ratelimit-remaining", "4");
    client.get("/").send().assert_status(200);
    client.get("/").send().assert_status(429).assert_header("x-ratelimit-limit", "2");
}

#[test]
fn handlers_can_read_the_remaining_time() {
    let over = |time: TimeLeft| -> Result<&str> {
        while !time.is_over() {
            std::thread::yield_now();
        }
        assert!(time.remaining().is_zero());
        time.check()?;
        Ok("never")
    };
    let long = || TimeoutBudget::new(Duration::from_secs(3600));
    let short = || TimeoutBudget::new(Duration::from_millis(20));
    // The budget that ends first applies, whatever the order is.
    App::new().get("/", over).with(short()).with(long()).test().get("/").send().assert_status(503);
    App::new().get("/", over).with(long()).with(short()).test().get("/").send().assert_status(503);
    let app = App::new()
        .get("/left", |time: TimeLeft| format!("{}", time.remaining() > Duration::from_secs(3000)));
    app.with(long()).test().get("/left").send().assert_text("true");
    assert!(App::new().get("/", |_: TimeLeft| "x").build().is_err(), "there is no budget");
    let forever = App::new().get("/", |time: TimeLeft| format!("{}", time.is_over()));
    forever.with(TimeoutBudget::new(Duration::MAX)).test().get("/").send().assert_text("false");
}

#[test]
fn refusing_late_responses_is_opt_in_and_keeps_errors() {
    let late = |result: Result<&'static str>| {
        let result = Mutex::new(Some(result));
        move |time: TimeLeft| {
            while !time.is_over() {
                std::thread::yield_now();
            }
            result.lock().take().unwrap()
        }
    };
    let budget = || TimeoutBudget::new(Duration::from_millis(5));
    let app = |handler, budget: TimeoutBudget| {
        App::new().route("/", get::<(TimeLeft,), _>(handler)).with(budget).test()
    };
    app(late(Ok("late")), budget()).get("/").send().assert_text("late");
    app(late(Ok("late")), budget().refuse_late(true)).get("/").send().assert_status(503);
    app(late(Ok("late")), budget().refuse_late(true).as_gateway())
        .get("/")
        .send()
        .assert_status(504);
    app(late(Err(Error::conflict("no"))), budget().refuse_late(true))
        .get("/")
        .send()
        .assert_status(409);
}

#[test]
fn time_that_was_already_spent_counts() {
    let budget = TimeoutBudget::new(Duration::from_secs(10 * 60))
        .already_spent(|request| request.header("x-queued")?.parse().ok().map(Duration::from_secs));
    let app =
        App::new().get("/", |time: TimeLeft| (time.remaining().as_secs().div_ceil(60)).to_string());
    let client = app.with(budget).test();
    let ask = |queued: &str| client.get("/").header("x-queued", queued).send();
    ask("nonsense").assert_text("10");
    ask("240").assert_text("6");
    ask("600").assert_status(503);
    ask("18446744073709551615").assert_status(503);
}
