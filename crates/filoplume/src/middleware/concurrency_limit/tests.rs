//! Tests of the counts, and of which bodies hold their place.

use std::fs::File;
use std::io::{self, Read};
use std::sync::mpsc;
use std::thread;

use filoplume_runtime::FileBody;

use super::*;

fn limiter(running_max: usize) -> Arc<Limiter> {
    Arc::clone(&ConcurrencyLimit::new(running_max).limiter)
}

#[test]
fn a_new_request_runs_when_another_one_ends() {
    let limiter = limiter(2);
    let first = Limiter::acquire(&limiter, None, None).ok().unwrap();
    let _second = Limiter::acquire(&limiter, None, None).ok().unwrap();
    assert!(Limiter::acquire(&limiter, None, None).is_err());
    drop(first);
    assert!(Limiter::acquire(&limiter, None, None).is_ok());
}

#[test]
fn a_new_request_has_the_place_of_a_client_that_takes_its_response_too_slowly() {
    let limiter = limiter(1);
    let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
    let long_ago = Instant::now().checked_sub(Duration::from_secs(3600)).unwrap();
    let place = Arc::new(SendingPlace::new(permit, long_ago));
    limiter.add_sending(&place);
    assert!(Limiter::acquire(&limiter, None, None).is_ok());
}

#[test]
fn a_client_at_its_limit_leaves_room_for_others_and_is_forgotten_at_the_end() {
    let limiter = limiter(3);
    let client =
        |last| Some(ClientLimit { network: IpAddr::from([192, 0, 2, last]), running_max: 2 });
    let first = Limiter::acquire(&limiter, client(1), None).ok().unwrap();
    let second = Limiter::acquire(&limiter, client(1), None).ok().unwrap();
    let reached = Limiter::acquire(&limiter, client(1), None).err();
    assert_eq!(reached, Some(LimitReached::PerClient { running_max: 2 }));
    let other = Limiter::acquire(&limiter, client(2), None).ok().unwrap();
    assert_eq!(
        Limiter::acquire(&limiter, client(2), None).err(),
        Some(LimitReached::Total { running: 3, sending: 0, waiting: 0 }),
        "a request refused by the total limit does not count for its client"
    );
    drop((first, second));
    assert!(Limiter::acquire(&limiter, client(2), None).is_ok());
    drop(other);
    let counts = limiter.counts.lock();
    assert_eq!((counts.running, counts.clients.len()), (0, 0));
}

#[test]
fn a_waiting_request_runs_when_another_one_ends() {
    let limiter = limiter(1);
    // Longer than the test waits: a request that is not woken does not run before the test
    // ends.
    let wait = Some(Wait { timeout: Duration::from_secs(3600), waiting_max: 1 });
    let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
    let (tell, is_let_in) = mpsc::channel();
    thread::spawn({
        let limiter = Arc::clone(&limiter);
        move || {
            // The permit is released before the test is told.
            let is_ok = Limiter::acquire(&limiter, None, wait).is_ok();
            tell.send(is_ok)
        }
    });
    while limiter.counts.lock().waiting == 0 {
        thread::yield_now();
    }
    assert!(Limiter::acquire(&limiter, None, wait).is_err(), "only one request may wait");
    drop(permit);
    assert_eq!(is_let_in.recv_timeout(Duration::from_secs(30)), Ok(true));
    let counts = limiter.counts.lock();
    assert_eq!((counts.running, counts.waiting), (0, 0));
}

#[test]
fn a_new_request_does_not_overtake_one_that_waits() {
    let limiter = limiter(2);
    let wait = Some(Wait { timeout: Duration::from_secs(3600), waiting_max: 2 });
    let permits = [(); 2].map(|()| Limiter::acquire(&limiter, None, None).ok().unwrap());
    let (tell, is_let_in) = mpsc::channel();
    for waiting in 0..2 {
        thread::spawn({
            let (limiter, tell) = (Arc::clone(&limiter), tell.clone());
            move || tell.send(Limiter::acquire(&limiter, None, wait).ok())
        });
        while limiter.counts.lock().waiting <= waiting {
            thread::yield_now();
        }
    }
    // Both places are released, and nobody has been woken yet.
    limiter.counts.lock().running = 0;
    assert!(Limiter::acquire(&limiter, None, None).is_err());
    // One is woken, and wakes the other.
    limiter.released.notify_one();
    let let_in = [(); 2].map(|()| is_let_in.recv_timeout(Duration::from_secs(30)).unwrap());
    assert!(let_in.iter().all(Option::is_some));
    assert_eq!(limiter.counts.lock().running, 2);
    limiter.counts.lock().running = 4;
    drop((let_in, permits));
    let counts = limiter.counts.lock();
    assert_eq!((counts.running, counts.waiting), (0, 0));
}

#[test]
fn a_request_that_waits_too_long_is_refused_and_forgotten() {
    let limiter = limiter(1);
    let _permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
    let wait = Some(Wait { timeout: Duration::from_millis(1), waiting_max: 1 });
    assert!(Limiter::acquire(&limiter, None, wait).is_err());
    assert_eq!(limiter.counts.lock().waiting, 0);
}

#[test]
fn a_body_that_is_read_holds_the_permit_until_it_is_dropped() {
    let limiter = limiter(1);
    let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
    let mut body = ResponseBody::Unsized(Box::new(io::Cursor::new("text")));
    hold_permit_while_sent(&mut body, permit);
    assert_eq!(limiter.counts.lock().running, 1);
    let ResponseBody::Unsized(mut reader) = body else { panic!("it is a reader still") };
    assert_eq!(io::read_to_string(&mut reader).unwrap(), "text");
    assert_eq!(limiter.counts.lock().running, 1);
    drop(reader);
    assert_eq!(limiter.counts.lock().running, 0);
}

#[test]
fn a_body_that_is_there_holds_no_permit() {
    /// A file that nobody reads.
    struct NoFile;
    impl Read for NoFile {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }
    impl FileBody for NoFile {
        fn part(&self) -> Option<(&File, u64)> {
            None
        }

        fn advance(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }
    let limiter = limiter(1);
    let file = ResponseBody::File { content: Box::new(NoFile), length: 1 };
    for mut body in [ResponseBody::Bytes("text".into()), ResponseBody::Empty, file] {
        let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
        hold_permit_while_sent(&mut body, permit);
        assert_eq!(limiter.counts.lock().running, 0);
    }
}

#[test]
fn a_place_is_waited_for_while_a_request_waits_and_after_a_refusal() {
    let limiter = limiter(1);
    let permit = Limiter::acquire(&limiter, None, None).ok().unwrap();
    assert!(!limiter.is_waited_for());
    assert!(Limiter::acquire(&limiter, None, None).is_err());
    assert!(limiter.is_waited_for());
    limiter.counts.lock().refused_at = Instant::now().checked_sub(REFUSED_FOR);
    assert!(!limiter.is_waited_for(), "the client does not come again");
    drop(permit);
}

#[test]
fn retry_after_is_at_least_one_second() {
    for (duration, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2)] {
        assert_eq!(whole_seconds(Duration::from_millis(duration)), seconds);
    }
}
