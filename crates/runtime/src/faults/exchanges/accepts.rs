//! Accepting a connection fails: others are accepted, at once or after a pause.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Call, Fault, Over, PATIENCE, PLAIN, Plan, eventually, expected};

#[test]
fn a_connection_that_is_aborted_before_accept_delays_no_other() {
    let expected = expected(PLAIN);
    for error in
        [Errno::CONNABORTED, Errno::INTR, Errno::CONNRESET, Errno::PERM, Errno::HOSTUNREACH]
    {
        for over in [Over::Tcp, Over::Unix] {
            // Ten in a row: the next one is accepted at once, without a pause.
            let plan = Arc::new(Plan::new(Call::Accept, 1, 10, Fault::Error(error)));
            let running = PLAIN.server(&plan, over);
            assert_eq!(PLAIN.run(&running).0, expected, "{error:?}");
            assert_eq!(plan.struck(), 10, "{error:?}");
            assert_eq!(running.server.metrics().unwrap().accept_errors, 0, "{error:?}");
            running.end();
        }
    }
}

#[test]
fn without_descriptors_an_idle_connection_makes_room() {
    let expected = expected(PLAIN);
    for error in [Errno::MFILE, Errno::NFILE] {
        let plan = Arc::new(Plan::new(Call::Accept, 2, 4, Fault::Error(error)));
        let running = PLAIN.server(&plan, Over::Tcp);
        let server = &running.server;
        let mut idle = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        idle.set_read_timeout(Some(PATIENCE)).unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        assert!(idle.read(&mut answer).unwrap() > 0, "{error:?}");
        assert_eq!(PLAIN.run(&running).0, expected, "{error:?}: accepted in the end");
        assert_eq!(plan.struck(), 4, "{error:?}");
        assert_eq!(idle.read(&mut answer).unwrap(), 0, "{error:?}: it is closed");
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.connections_shed, metrics.accept_errors), (1, 4), "{error:?}");
        // The cause is not that there are too many connections.
        let of_descriptors = (metrics.shed_for_descriptors, metrics.accepts_without_descriptor);
        assert_eq!(of_descriptors, (1, 4), "{error:?}");
        running.end();
    }
}

#[test]
fn without_memory_accepting_pauses_and_continues() {
    let expected = expected(PLAIN);
    for error in [Errno::NOMEM, Errno::NOBUFS] {
        // The second to fifth attempts fail. Connected clients are served meanwhile.
        let plan = Arc::new(Plan::new(Call::Accept, 2, 4, Fault::Error(error)));
        let running = PLAIN.server(&plan, Over::Tcp);
        let server = &running.server;
        let mut kept = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 1024];
        let mut ask = || {
            kept.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            assert!(kept.read(&mut answer).unwrap() > 0, "{error:?}");
        };
        ask();
        thread::scope(|scope| {
            let waits = scope.spawn(|| PLAIN.run(&running));
            eventually("it has failed once", || plan.struck() >= 1);
            ask();
            let started = Instant::now();
            eventually("it has failed three times", || plan.struck() >= 3);
            ask();
            // Each attempt is followed by a pause of 100 ms, so the loop does not spin.
            assert!(
                started.elapsed() >= Duration::from_millis(50),
                "{error:?}: {:?}",
                started.elapsed()
            );
            assert_eq!(waits.join().unwrap().0, expected, "{error:?}: accepted in the end");
        });
        assert_eq!(plan.struck(), 4, "{error:?}");
        assert!(plan.calls() < 12, "{error:?}: {} attempts", plan.calls());
        let metrics = server.metrics().unwrap();
        assert_eq!(
            (metrics.accept_errors, metrics.accepts_without_descriptor),
            (4, 0),
            "{error:?}"
        );
        running.end();
    }
}
