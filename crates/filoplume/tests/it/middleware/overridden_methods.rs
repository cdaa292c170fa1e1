//! What a request whose method is changed takes from others: the plan of its route holds.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use filoplume::middleware::MethodOverride;
use filoplume::prelude::*;
use filoplume::{Method, Permits};

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a handler uses the database.
const QUERY: Duration = Duration::from_millis(20);

/// The `POST`s that become a `DELETE` of `/note`: by header, by query and by form.
const OVERRIDES: [&str; 3] = [
    "POST /note HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n",
    "POST /note?_method=DELETE HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "POST /note HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
     Content-Length: 14\r\n\r\n_method=DELETE",
];

fn connect(address: SocketAddr, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

fn status(mut socket: &TcpStream) -> String {
    let mut status = [0; 12];
    socket.read_exact(&mut status).unwrap();
    String::from_utf8_lossy(&status[9..]).into_owned()
}

/// A resource that counts its users.
#[derive(Default)]
struct Counted {
    users: AtomicUsize,
    most: AtomicUsize,
}

impl Counted {
    fn have(&self) {
        let users = self.users.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(users, Ordering::SeqCst);
        thread::sleep(QUERY);
        self.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends the request several times at once, and returns how many of them used the database at once.
fn most_at_once(app: impl FnOnce(&Permits, Arc<Counted>) -> App, request: &str) -> usize {
    let (database, counted) = (Permits::new("database", 1), Arc::<Counted>::default());
    let app = app(&database, Arc::clone(&counted)).start("127.0.0.1:0").unwrap();
    let sockets: Vec<_> = (0..4).map(|_| connect(app.local_addr(), request)).collect();
    for socket in &sockets {
        assert_eq!(status(socket), "200", "{request}");
    }
    app.shutdown();
    assert_eq!(database.available(), 1, "{request}");
    counted.most.load(Ordering::SeqCst)
}

#[test]
fn an_overridden_method_takes_the_permits_of_its_route() {
    for request in OVERRIDES {
        let alone = |database: &Permits, counted: Arc<Counted>| {
            let route = delete(move || counted.have()).on_pool().uses(database);
            App::new().route("/note", route).with(MethodOverride::new())
        };
        assert_eq!(most_at_once(alone, request), 1, "{request}");
        // The route for `POST` uses no permits, or others.
        for posts in [None, Some(Permits::new("mail", 9))] {
            let beside = |database: &Permits, counted: Arc<Counted>| {
                let route = delete(move || counted.have()).on_pool().uses(database);
                let post = post(|| "posted").on_pool();
                let post = if let Some(mail) = &posts { post.uses(mail) } else { post };
                let app = App::new().route("/note", route).route("/note", post);
                app.with(MethodOverride::new())
            };
            assert_eq!(most_at_once(beside, request), 1, "{request}");
            assert!(posts.is_none_or(|mail| mail.available() == 9));
        }
    }
}

#[test]
fn a_method_that_other_middleware_changes_takes_the_permits_of_its_route() {
    let app = |database: &Permits, counted: Arc<Counted>| {
        let route = delete(move || counted.have()).on_pool().uses(database);
        let change = |mut request: Request, next: Next<'_>| {
            request.set_method(Method::DELETE);
            next.run(request)
        };
        App::new().route("/note", route).post("/note", || "posted").with(change)
    };
    let request = "POST /note HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(most_at_once(app, request), 1);
}

/// The plan has read the header, but the middleware does not: it runs behind the one that removes
/// the header.
#[test]
fn a_header_that_is_removed_before_it_is_read_changes_nothing() {
    let remove = |mut request: Request, next: Next<'_>| {
        request.headers_mut().remove("x-http-method-override");
        next.run(request)
    };
    let routes = || App::new().delete("/note", || "deleted");
    for (app, expected) in [(routes().post("/note", || "posted"), "200"), (routes(), "405")] {
        let app = app.with(remove).with(MethodOverride::new()).start("127.0.0.1:0").unwrap();
        let mut socket = connect(app.local_addr(), OVERRIDES[0]);
        assert_eq!(status(&socket), expected);
        app.shutdown();
        let mut rest = String::new();
        socket.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("deleted"), "{rest}");
    }
}

#[test]
fn a_request_for_another_method_is_refused_if_no_permit_is_free() {
    let database = Permits::new("database", 1);
    let held = database.take(Duration::ZERO).unwrap();
    let change = |mut request: Request, next: Next<'_>| {
        request.set_method(Method::DELETE);
        next.run(request)
    };
    let route = delete(|| "deleted").uses(&database);
    let app = App::new().route("/note", route).with(change).start("127.0.0.1:0").unwrap();
    let request = "POST /note HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(status(&connect(app.local_addr(), request)), "503");
    drop(held);
    assert_eq!(status(&connect(app.local_addr(), request)), "200");
    app.shutdown();
}

#[test]
fn an_unfinished_form_for_another_method_holds_no_thread() {
    // The last app has a route that would otherwise read its content as it arrives.
    let apps: [fn() -> App; 3] = [
        App::new,
        || App::new().post("/note", || "posted"),
        || App::new().post("/note", |_: Body| "posted"),
    ];
    for app in apps {
        let called = Arc::<AtomicUsize>::default();
        let counts = Arc::clone(&called);
        let count = move |request: Request, next: Next<'_>| {
            counts.fetch_add(1, Ordering::SeqCst);
            next.run(request)
        };
        let app = app()
            .delete("/note", |form: String| form)
            .with(count)
            .with(MethodOverride::new())
            .start("127.0.0.1:0")
            .unwrap();
        let head = "POST /note HTTP/1.1\r\nHost: a\r\nContent-Type: \
                    application/x-www-form-urlencoded\r\nExpect: 100-continue\r\nContent-Length: \
                    20\r\n\r\n";
        let mut slow = connect(app.local_addr(), head);
        // The server waits for the content.
        let mut interim = [0; 25];
        slow.read_exact(&mut interim).unwrap();
        assert!(interim.starts_with(b"HTTP/1.1 100 "));
        assert_eq!(called.load(Ordering::SeqCst), 0);
        slow.write_all(b"_method=DELETE&a=b&c").unwrap();
        assert_eq!(status(&slow), "200");
        assert_eq!(called.load(Ordering::SeqCst), 1);
        app.shutdown();
    }
}
