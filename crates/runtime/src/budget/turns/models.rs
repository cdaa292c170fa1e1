//! Model checks of turns.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::{Member, Turn, Turns};

fn member(thread: u32) -> Member {
    Member { thread, client: None }
}

/// Takes a turn, gives it back for a client, takes it again and ends it. At most one thread is at
/// work at a time.
fn works(turns: &Arc<Turns>, number: u32, at_work: &AtomicUsize) {
    let work = || {
        assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two have a turn");
        at_work.fetch_sub(1, Ordering::SeqCst);
    };
    let mut turn = Turn::of(turns, member(number));
    work();
    turn.suspend(|| {});
    work();
}

/// No thread waits for ever: a missing wake-up would be a deadlock, which loom reports, because the
/// next in line is never late in a model.
#[test]
fn each_thread_gets_its_turns_and_one_has_one_at_a_time() {
    loom::model(|| {
        let turns = Turns::new(1, |_| Some(true));
        let at_work = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let (turns, at_work) = (Arc::clone(&turns), Arc::clone(&at_work));
            move || works(&turns, 2, &at_work)
        });
        works(&turns, 1, &at_work);
        other.join().unwrap();
        let line = turns.line.lock();
        assert!(line.having.is_empty() && line.waiting.is_empty());
    });
}

/// The thread that becomes the next in line is notified, whichever thread leaves before it.
#[test]
fn three_threads_have_their_turns_in_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let turns = Turns::new(1, |_| Some(true));
        let others: Vec<_> = (2..4)
            .map(|number| {
                let turns = Arc::clone(&turns);
                thread::spawn(move || drop(Turn::of(&turns, member(number))))
            })
            .collect();
        drop(Turn::of(&turns, member(1)));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(turns.line.lock().having.is_empty());
    });
}
