//! The calls of handlers that run: which are listed, and what their threads wait for.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::cmp::Reverse;
use std::hint::spin_loop;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{
    Monitor, Plan, Request, Response, RunningCall, Runs, Server, ServerConfig, Service, Wait,
    note_request_id,
};

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

type Handler = Arc<dyn Fn(&Request) + Send + Sync>;

/// Routes with one handler each: `/0`, `/1` and so on. All others answer at once.
#[derive(Clone)]
struct Site {
    handlers: Vec<Handler>,
    runs: Runs,
    monitor: Arc<OnceLock<Monitor>>,
}

impl Site {
    fn handler(&self, request: &Request) -> Option<u32> {
        let number: u32 = request.path().trim_start_matches('/').parse().ok()?;
        ((number as usize) < self.handlers.len()).then_some(number)
    }
}

impl Service for Site {
    fn started(&self, monitor: &Monitor) {
        let _ = self.monitor.set(monitor.clone());
    }

    fn plan(&self, request: &mut Request) -> Plan {
        let is_on_pool = self.runs == Runs::OnPool;
        let plan = if is_on_pool { Plan::new().on_pool() } else { Plan::new().on_loop() };
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
        if request.path() != "/upgrade" {
            return Response::from("done");
        }
        let mut response = Response::upgrade(|mut stream| {
            let _ = stream.read(&mut [0; 16]);
        });
        response.set_header("upgrade", "it").unwrap();
        response
    }
}

struct Running {
    server: Server,
    monitor: Monitor,
}

impl Running {
    fn start(handlers: Vec<Handler>, runs: Runs, stuck_after: Option<Duration>) -> Self {
        let config = ServerConfig::default().event_loops(2).stuck_after(stuck_after);
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        let site = Site { handlers, runs, monitor: Arc::default() };
        let monitor = Arc::clone(&site.monitor);
        server.spawn(site).unwrap();
        Self { server, monitor: monitor.get().unwrap().clone() }
    }

    fn address(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    /// Returns the calls, as soon as they are as expected.
    fn calls_when(&self, are_right: impl Fn(&[RunningCall]) -> bool) -> Vec<RunningCall> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let calls = self.monitor.calls().unwrap();
            if are_right(&calls) {
                return calls;
            }
            assert!(Instant::now() < deadline, "{calls:#?}");
            thread::yield_now();
        }
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

/// Four handlers: one sleeps, one reads from a socket, one waits for a lock, and one computes. They
/// end when `over` is set, the accepted connection is dropped and the mutex is unlocked.
struct Waits {
    handlers: Vec<Handler>,
    over: Arc<AtomicBool>,
    listener: TcpListener,
    mutex: Arc<Mutex<()>>,
}

impl Waits {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mutex = Arc::new(Mutex::new(()));
        let (sleeps, spins, locked) = (Arc::clone(&over), Arc::clone(&over), Arc::clone(&mutex));
        let handlers: Vec<Handler> = vec![
            Arc::new(move |_| {
                while !sleeps.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(777));
                }
            }),
            Arc::new(move |_| {
                let _ = TcpStream::connect(address).unwrap().read(&mut [0; 16]);
            }),
            Arc::new(move |_| drop(locked.lock())),
            Arc::new(move |_| {
                while !spins.load(Ordering::SeqCst) {
                    spin_loop();
                }
            }),
        ];
        Self { handlers, over, listener, mutex }
    }

    /// Returns what the handler of a route waits for.
    fn of(&self, route: usize) -> Wait {
        match route {
            0 => Wait::Sleep { time: Some(Duration::from_millis(777)) },
            1 => {
                let peer = Some(self.listener.local_addr().unwrap().to_string());
                Wait::Socket { doing: "reads from", peer }
            }
            2 => Wait::Lock { kind: Some("a mutex") },
            _ => Wait::Computing,
        }
    }

    fn are_named(&self, calls: &[RunningCall]) -> bool {
        let is_named = |route: usize| {
            let mut those =
                calls.iter().filter(|call| call.route == Some(format!("route {route}")));
            let call = those.next();
            call.is_some_and(|call| call.wait == Some(self.of(route))) && those.next().is_none()
        };
        calls.len() == 4 && (0..4).all(is_named)
    }
}

/// `/proc` may show a wait a moment late, so each list is read again until it is right.
#[test]
fn calls_are_listed_with_what_they_wait_for_until_they_end() {
    let soon = Some(Duration::from_millis(50));
    for (runs, stuck_after) in
        [(Runs::OnPool, soon), (Runs::OnLoop, soon), (Runs::OnPool, None), (Runs::OnLoop, None)]
    {
        let waits = Waits::new();
        let held = waits.mutex.lock().unwrap();
        let running = Running::start(waits.handlers.clone(), runs, stuck_after);
        let mut clients = Vec::new();
        for route in 0..4 {
            clients.push(send(running.address(), &format!("/{route}")));
        }
        let accepted = waits.listener.accept().unwrap();
        let first = running.calls_when(|calls| waits.are_named(calls));
        for call in &first {
            let route = call.route.as_deref().unwrap().trim_start_matches("route ");
            assert_eq!(call.request_id, Some(format!("/{route}")), "{call:?}");
            assert!(call.running >= Duration::from_millis(10), "{call:?}");
            assert!(call.thread_id > 0, "{call:?}");
            assert!(call.thread.as_deref().unwrap().starts_with("filoplume"), "{call:?}");
            assert!(!call.is_detached, "{call:?}");
            assert_eq!(call.runs, runs, "{call:?}");
        }
        let is_ordered = |calls: &[RunningCall]| calls.is_sorted_by_key(|it| Reverse(it.running));
        assert!(is_ordered(&first), "{first:#?}");
        // The list is also right after the calls were reported, if they are.
        let later = first[0].running + Duration::from_millis(700);
        let second = running.calls_when(|calls| {
            waits.are_named(calls) && calls.iter().all(|call| call.running > later)
        });
        let threads = |calls: &[RunningCall]| {
            let mut threads: Vec<u32> = calls.iter().map(|call| call.thread_id).collect();
            threads.sort_unstable();
            threads
        };
        assert_eq!(threads(&first), threads(&second));

        waits.over.store(true, Ordering::SeqCst);
        drop(accepted);
        drop(held);
        clients.into_iter().for_each(finish);
        running.calls_when(<[RunningCall]>::is_empty);
    }
}

/// The threads of the pool run short calls all the time: none of these is listed with the wait or
/// the ID of another one.
#[test]
fn a_call_is_never_shown_with_the_wait_or_the_id_of_another() {
    let handlers: Vec<Handler> = vec![
        Arc::new(|_| thread::sleep(Duration::from_millis(12))),
        Arc::new(|_| {
            let end = Instant::now() + Duration::from_millis(12);
            while Instant::now() < end {
                spin_loop();
            }
        }),
    ];
    let running = Running::start(handlers, Runs::OnPool, None);
    let address = running.address();
    let is_over = AtomicBool::new(false);
    let mut listed = 0;
    thread::scope(|scope| {
        for path in ["/0", "/1", "/0", "/1"] {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    finish(send(address, path));
                }
            });
        }
        let ends = Instant::now() + Duration::from_secs(2);
        while Instant::now() < ends {
            for call in running.monitor.calls().unwrap() {
                listed += 1;
                let route = call.route.as_deref().unwrap().trim_start_matches("route ");
                // At the start and at the end of a call there is no ID.
                let is_right = call.request_id.as_ref().is_none_or(|id| id[1..] == *route);
                assert!(is_right, "{call:?}");
                let sleeps = matches!(call.wait, Some(Wait::Sleep { .. }));
                assert!(!sleeps || route == "0", "{call:?}");
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(listed > 0);
}

#[test]
fn a_thread_that_has_taken_over_its_connection_is_listed_as_detached() {
    let running = Running::start(Vec::new(), Runs::OnPool, Some(Duration::from_millis(50)));
    let mut client = TcpStream::connect(running.address()).unwrap();
    let request = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: it\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    let peer = Some(client.local_addr().unwrap().to_string());
    let wait = Some(Wait::Socket { doing: "reads from", peer });
    let calls = running.calls_when(|calls| calls.len() == 1 && calls[0].wait == wait);
    assert!(calls[0].is_detached, "{calls:?}");
    assert_eq!((calls[0].route.as_deref(), calls[0].runs), (Some("route 1000"), Runs::OnPool));
    drop(client);
    running.calls_when(<[RunningCall]>::is_empty);
}

#[test]
fn event_loops_are_listed_with_their_threads_and_hand_overs() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let handler: Handler = Arc::new(move |_| _ = released.lock().unwrap().recv());
    let running = Running::start(vec![handler], Runs::OnLoop, None);
    let loops = || running.monitor.metrics().unwrap().loops().to_vec();
    let until = |what: &dyn Fn() -> bool| {
        let deadline = Instant::now() + DEADLINE;
        while !what() {
            assert!(Instant::now() < deadline, "{:?}", loops());
            thread::yield_now();
        }
    };
    until(&|| loops().iter().all(|it| it.thread.is_some()));
    assert_eq!(loops().len(), 2);
    assert_eq!(loops().iter().map(|it| it.handed_over).sum::<u64>(), 0);
    let idle = TcpStream::connect(running.address()).unwrap();
    let client = send(running.address(), "/0");
    until(&|| loops().iter().map(|it| it.connections).sum::<u64>() == 2);
    until(&|| loops().iter().map(|it| it.handed_over).sum::<u64>() == 1);
    let call = running.calls_when(|calls| calls.len() == 1).remove(0);
    // Another thread leads that loop now.
    until(&|| loops().iter().all(|it| it.thread.is_some() && it.thread != call.thread));
    release.send(()).unwrap();
    finish(client);
    until(&|| loops().iter().map(|it| it.connections).sum::<u64>() == 1);
    until(&|| loops().iter().map(|it| it.parked).sum::<u64>() == 1);
    drop(idle);
    until(&|| loops().iter().map(|it| it.connections).sum::<u64>() == 0);
}

#[test]
fn a_server_that_has_ended_has_no_calls() {
    let running = Running::start(Vec::new(), Runs::OnPool, None);
    assert_eq!(running.monitor.calls().unwrap().len(), 0);
    let monitor = running.monitor.clone();
    running.server.shutdown_handle().shutdown();
    running.server.wait();
    assert!(running.monitor.metrics().unwrap().loops().is_empty());
    drop(running);
    let deadline = Instant::now() + DEADLINE;
    while monitor.calls().is_some() {
        assert!(Instant::now() < deadline, "the server is kept");
        thread::yield_now();
    }
}
