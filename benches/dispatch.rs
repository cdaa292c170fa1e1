//! What does it cost to hand work to another thread and to be notified of its end?
//!
//! `cargo bench -p filoplume-benches --bench dispatch`

use std::sync::mpsc;

use filoplume_benches::report;
use filoplume_runtime::{MessageQueue, TaskPool};

fn main() {
    let pool = TaskPool::new();
    let (done, heard) = mpsc::channel();
    report("one task to an idle thread and back", 2_000, || {
        let done = done.clone();
        pool.execute(move || done.send(()).expect("somebody listens"))
            .expect("an idle pool takes a task");
        heard.recv().expect("the task is done");
    });
    report("a hundred tasks at once, each heard of", 200, || {
        for _ in 0..100 {
            let done = done.clone();
            pool.execute(move || done.send(()).expect("somebody listens"))
                .expect("there is room for a hundred");
        }
        for _ in 0..100 {
            heard.recv().expect("the task is done");
        }
    });
    let queue = MessageQueue::new(1024);
    report("a message through the queue, on one thread", 20_000, || {
        queue.send(1_u64).expect("there is room");
        queue.recv().expect("there is a message");
    });
    pool.shutdown(std::time::Duration::from_secs(5));
}
