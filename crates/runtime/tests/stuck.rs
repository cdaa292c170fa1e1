//! Handlers that do not return: which calls are reported, how often, and what their threads wait
//! for.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::hint::spin_loop;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{
    Plan, Request, Response, Server, ServerConfig, Service, Stuck, Wait, note_request_id,
};

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time after which a handler is reported. The first calls of a route have ten times as long.
const STUCK_AFTER: Duration = Duration::from_millis(50);

/// Whether the stack tells the kind of a lock.
const HAS_STACKS: bool = cfg!(all(feature = "stacks", target_arch = "x86_64"));

type Handler = Arc<dyn Fn(&Request) + Send + Sync>;

/// Routes with one handler each: `/0`, `/1` and so on. All others answer at once.
struct Site {
    handlers: Vec<Handler>,
    is_on_pool: bool,
    reports: mpsc::Sender<Stuck>,
}

impl Site {
    fn handler(&self, request: &Request) -> Option<u32> {
        let number: u32 = request.path().trim_start_matches('/').parse().ok()?;
        ((number as usize) < self.handlers.len()).then_some(number)
    }
}

impl Service for Site {
    fn plan(&self, request: &mut Request) -> Plan {
        let plan = if self.is_on_pool { Plan::new().on_pool() } else { Plan::new().on_loop() };
        plan.route(self.handler(request).unwrap_or(1000))
    }

    fn route_name(&self, route: u32) -> Option<String> {
        Some(format!("route {route}"))
    }

    fn call(&self, request: Request) -> Response {
        let id = request.path().to_owned();
        let _id = note_request_id(&id);
        if let Some(number) = self.handler(&request) {
            self.handlers[number as usize](&request);
        }
        Response::from("done")
    }

    fn stuck(&self, stuck: &Stuck) {
        let _ = self.reports.send(stuck.clone());
    }
}

struct Running {
    server: Server,
    reports: mpsc::Receiver<Stuck>,
}

impl Running {
    fn start(handlers: Vec<Handler>, is_on_pool: bool) -> Self {
        let (sender, reports) = mpsc::channel();
        let config = ServerConfig::default().event_loops(2).stuck_after(STUCK_AFTER);
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        server.spawn(Site { handlers, is_on_pool, reports: sender }).unwrap();
        Self { server, reports }
    }

    fn address(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    fn report(&self) -> Stuck {
        self.reports.recv_timeout(DEADLINE).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.shutdown_handle().shutdown();
    }
}

/// Sends a request and does not wait for the response.
fn send(address: SocketAddr, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    client
}

fn finish(mut client: TcpStream) {
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("done"), "{response}");
}

/// Lets a call wait in `handler` until it is reported, and then calls `release`. Returns this
/// report when the end of the call has been reported as well.
fn report_of(
    is_on_pool: bool,
    handler: impl Fn(&Request) + Send + Sync + 'static,
    release: impl FnOnce(),
) -> Stuck {
    let running = Running::start(vec![Arc::new(handler)], is_on_pool);
    let client = send(running.address(), "/0");
    let stuck = running.report();
    assert_eq!(stuck.route.as_deref(), Some("route 0"));
    assert_eq!(stuck.request_id.as_deref(), Some("/0"));
    assert!(!stuck.has_ended);
    assert!(stuck.running >= STUCK_AFTER * 10, "{stuck:?}");
    release();
    let end = running.report();
    assert_eq!((end.number, end.has_ended, &end.route), (stuck.number, true, &stuck.route));
    assert_eq!((&end.request_id, &end.wait), (&stuck.request_id, &None));
    assert!(end.running >= stuck.running, "{end:?}");
    finish(client);
    assert!(running.reports.try_recv().is_err(), "a call is reported once");
    stuck
}

/// A flag that a handler waits for by sleeping or computing.
fn flag() -> (Arc<AtomicBool>, impl FnOnce()) {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    (flag, move || set.store(true, Ordering::SeqCst))
}

#[test]
fn a_read_from_a_socket_is_named_with_its_peer() {
    for is_on_pool in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, accepts) = mpsc::channel();
        let accepting = thread::spawn(move || accepted.send(listener.accept().unwrap().0));
        let handler = move |_: &Request| {
            let mut socket = TcpStream::connect(address).unwrap();
            let _ = socket.read(&mut [0; 16]);
        };
        let stuck = report_of(is_on_pool, handler, move || drop(accepts.recv().unwrap()));
        accepting.join().unwrap().unwrap();
        let peer = Some(address.to_string());
        assert_eq!(stuck.wait, Some(Wait::Socket { doing: "reads from", peer }));
    }
}

#[test]
fn a_read_from_a_unix_socket_is_named() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let handler = move |_: &Request| _ = (&theirs).read(&mut [0; 16]);
    let stuck = report_of(true, handler, move || drop(ours));
    let peer = Some("a process on this machine".to_owned());
    assert_eq!(stuck.wait, Some(Wait::Socket { doing: "reads from", peer }));
}

#[test]
fn a_mutex_of_the_standard_library_is_named() {
    for is_on_pool in [true, false] {
        let mutex = Arc::new(Mutex::new(()));
        let ours = Arc::clone(&mutex);
        let held = ours.lock().unwrap();
        let handler = move |_: &Request| drop(mutex.lock());
        let stuck = report_of(is_on_pool, handler, || drop(held));
        assert_eq!(stuck.wait, Some(Wait::Lock { kind: Some("a mutex") }));
    }
}

#[test]
fn a_lock_of_parking_lot_is_named() {
    let mutex = Arc::new(parking_lot::Mutex::new(()));
    let ours = Arc::clone(&mutex);
    let held = ours.lock();
    let stuck = report_of(true, move |_| drop(mutex.lock()), || drop(held));
    let kind = if HAS_STACKS { "a mutex" } else { "a mutex or another lock" };
    assert_eq!(stuck.wait, Some(Wait::Lock { kind: Some(kind) }));
}

#[inline(never)]
fn a_function_that_sleeps(is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(777));
    }
}

#[inline(never)]
fn a_function_that_locks(mutex: &parking_lot::Mutex<()>) {
    drop(mutex.lock());
}

#[test]
fn the_functions_of_a_stuck_thread_are_named() {
    if !HAS_STACKS {
        return;
    }
    for is_on_pool in [true, false] {
        let (flag, set) = flag();
        let stuck = report_of(is_on_pool, move |_| a_function_that_sleeps(&flag), set);
        let is_it = |name: &String| name == "stuck::a_function_that_sleeps";
        assert!(stuck.frames.iter().any(is_it), "{:#?}", stuck.frames);
        assert!(!stuck.frames.iter().any(|name| name.contains("engine::")), "{:#?}", stuck.frames);
    }
    let mutex = Arc::new(parking_lot::Mutex::new(()));
    let ours = Arc::clone(&mutex);
    let held = ours.lock();
    let stuck = report_of(true, move |_| a_function_that_locks(&mutex), || drop(held));
    let is_it = |name: &String| name == "stuck::a_function_that_locks";
    assert!(stuck.frames.iter().any(is_it), "{:#?}", stuck.frames);
}

#[test]
fn other_waits_for_threads_are_named() {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let receive = move |_: &Request| _ = receiver.lock().unwrap().recv();
    let stuck = report_of(true, receive, || drop(sender));
    let kind = if HAS_STACKS { "a channel" } else { "another thread, by a channel or `park`" };
    assert_eq!(stuck.wait, Some(Wait::Lock { kind: Some(kind) }), "{:?}", stuck.frames);

    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let ours = Arc::clone(&gate);
    let wait = move |_: &Request| {
        let (is_open, changed) = &*gate;
        drop(changed.wait_while(is_open.lock().unwrap(), |is_open| !*is_open));
    };
    let open = move || {
        *ours.0.lock().unwrap() = true;
        ours.1.notify_all();
    };
    let stuck = report_of(true, wait, open);
    let kind =
        if HAS_STACKS { "a condition variable" } else { "a condition variable or another thread" };
    assert_eq!(stuck.wait, Some(Wait::Lock { kind: Some(kind) }), "{:?}", stuck.frames);

    let (flag, set) = flag();
    let join = move |_: &Request| {
        let flag = Arc::clone(&flag);
        let other = thread::spawn(move || {
            while !flag.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(3));
            }
        });
        other.join().unwrap();
    };
    let stuck = report_of(true, join, set);
    assert_eq!(stuck.wait, Some(Wait::Lock { kind: Some("another thread to end") }));
}

#[test]
fn a_sleep_is_named_with_its_time() {
    for is_on_pool in [true, false] {
        let (flag, set) = flag();
        let sleep = Duration::from_millis(777);
        let handler = move |_: &Request| {
            while !flag.load(Ordering::SeqCst) {
                thread::sleep(sleep);
            }
        };
        let stuck = report_of(is_on_pool, handler, set);
        assert_eq!(stuck.wait, Some(Wait::Sleep { time: Some(sleep) }));
    }
}

#[test]
fn a_spin_is_named_as_computing() {
    for is_on_pool in [true, false] {
        let (flag, set) = flag();
        let handler = move |_: &Request| {
            while !flag.load(Ordering::SeqCst) {
                spin_loop();
            }
        };
        let stuck = report_of(is_on_pool, handler, set);
        assert_eq!(stuck.wait, Some(Wait::Computing));
    }
}

/// One route is always slow, other calls are short, and one call hangs, all on the same threads.
/// Only the call that hangs is reported.
#[test]
fn only_the_call_that_hangs_is_reported() {
    let (flag, set) = flag();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let always = STUCK_AFTER * 3;
    let handlers: Vec<Handler> = vec![
        Arc::new(move |_| thread::sleep(always)),
        Arc::new(move |_| {
            while counted.fetch_add(1, Ordering::SeqCst) >= 20 && !flag.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_secs(1));
            }
        }),
    ];
    let running = Running::start(handlers, true);
    let address = running.address();
    let ends = Instant::now() + Duration::from_secs(4);
    thread::scope(|scope| {
        for path in ["/0", "/0", "/short", "/short"] {
            scope.spawn(move || {
                while Instant::now() < ends {
                    finish(send(address, path));
                }
            });
        }
        for _ in 0..20 {
            finish(send(address, "/1"));
        }
        let client = send(address, "/1");
        let stuck = running.report();
        assert_eq!(stuck.route.as_deref(), Some("route 1"), "{stuck}");
        assert_eq!(stuck.request_id.as_deref(), Some("/1"));
        set();
        finish(client);
        assert!(running.report().has_ended);
    });
    assert!(running.reports.try_recv().is_err());
}
