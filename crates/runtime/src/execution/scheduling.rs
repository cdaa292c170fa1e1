//! How Linux schedules the threads that lead event loops: under its batch policy.
//!
//! Under the usual policy a thread that wakes up takes the processor from whoever has it. For a
//! leader that is a poor bargain: it finds one request where there would be several a moment later,
//! and whom it interrupts is often the one who is about to send them, such as a proxy or a load
//! generator on the same machine, or a handler about to answer. Under the batch policy, `sched(7)`,
//! a leader that wakes up waits for a processor that is free, or for the end of a slice. Its share
//! stays the same.
//!
//! Threads that run handlers stay under the usual policy: who was asleep for a database answers
//! when the database has. Whoever gave the program another policy keeps it, and a nice value is
//! never touched. Elsewhere than on Linux all this does nothing. docs/decisions/0016 has the
//! reasons, docs/benchmarks/tried.md the figures.

#[cfg(target_os = "linux")]
pub(crate) use linux::{Batch, as_usual};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Batch, as_usual};

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use rustix::process::getpriority_process;
    use thread_priority::NormalThreadSchedulePolicy::{
        self as Policy, Batch as BATCH, Other as USUAL,
    };
    use thread_priority::{
        ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id, thread_schedule_policy,
    };

    thread_local! {
        /// Whether this thread is under the batch policy because of a [`Batch`].
        static IS_BATCH: Cell<bool> = const { Cell::new(false) };
    }

    /// The batch policy for the current thread, until this is dropped.
    #[derive(Debug)]
    pub(crate) struct Batch(PhantomData<*const ()>);

    impl Batch {
        /// Begins it. `None` if this thread has another policy than the usual one, or the system
        /// does not let it have this.
        pub(crate) fn begin() -> Option<Self> {
            let is_usual =
                matches!(thread_schedule_policy(), Ok(ThreadSchedulePolicy::Normal(USUAL)));
            if !(is_usual && set(BATCH)) {
                return None;
            }
            IS_BATCH.set(true);
            Some(Self(PhantomData))
        }
    }

    impl Drop for Batch {
        fn drop(&mut self) {
            IS_BATCH.set(false);
            set(USUAL);
        }
    }

    /// Returns what a thread of the engine is to run, so that it begins under the usual policy
    /// though a leader starts it: threads inherit theirs.
    pub(crate) fn as_usual(body: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
        let inherits = IS_BATCH.get();
        move || {
            if inherits {
                set(USUAL);
            }
            body();
        }
    }

    /// Whether this thread is under `policy` now.
    fn set(policy: Policy) -> bool {
        let policy = ThreadSchedulePolicy::Normal(policy);
        let Some(priority) = priority_as_it_is(policy) else { return false };
        let result = set_thread_priority_and_policy(thread_native_id(), priority, policy);
        if let Err(error) = &result {
            tracing::debug!(%error, ?policy, "a thread keeps its scheduling policy");
        }
        result.is_ok()
    }

    /// The priority that stands for the nice value which this thread has: a policy cannot be set
    /// without one.
    fn priority_as_it_is(policy: ThreadSchedulePolicy) -> Option<ThreadPriority> {
        let nice = getpriority_process(None).ok()?;
        (0..=u8::from(ThreadPriorityValue::MAX))
            .filter_map(|value| ThreadPriority::try_from(value).ok())
            .find(|priority| priority.to_posix(policy).is_ok_and(|value| value == nice))
    }

    #[cfg(test)]
    mod tests {
        use std::thread;

        use rustix::process::nice;

        use super::*;

        fn policy() -> Policy {
            match thread_schedule_policy().unwrap() {
                ThreadSchedulePolicy::Normal(policy) => policy,
                ThreadSchedulePolicy::Realtime(policy) => panic!("{policy:?}"),
            }
        }

        /// Runs a test on a thread of its own, which it changes, and tells it the nice value that
        /// this begins with. Whoever runs the tests under another policy, or forbids to change it,
        /// has nothing to see.
        fn on_a_thread(test: impl FnOnce(i32) + Send + 'static) {
            let may_change = thread::spawn(|| Batch::begin().is_some()).join().unwrap();
            if !may_change {
                return skip::because("this process may not choose the batch policy");
            }
            thread::spawn(|| test(getpriority_process(None).unwrap())).join().unwrap();
        }

        #[test]
        fn a_thread_is_under_the_batch_policy_for_a_time() {
            on_a_thread(|_| {
                let batch = Batch::begin().unwrap();
                assert_eq!(policy(), BATCH);
                drop(batch);
                assert_eq!(policy(), USUAL);
            });
        }

        #[test]
        fn a_nice_value_stays_as_it_is() {
            on_a_thread(|first| {
                for value in first..=18 {
                    let batch = Batch::begin().unwrap();
                    assert_eq!((policy(), getpriority_process(None).unwrap()), (BATCH, value));
                    drop(batch);
                    assert_eq!((policy(), getpriority_process(None).unwrap()), (USUAL, value));
                    nice(1).unwrap();
                }
            });
        }

        #[test]
        fn whoever_chose_another_policy_keeps_it() {
            on_a_thread(|_| {
                assert!(set(Policy::Idle));
                assert!(Batch::begin().is_none());
                assert_eq!(policy(), Policy::Idle);
            });
            on_a_thread(|_| {
                assert!(set(BATCH));
                assert!(Batch::begin().is_none());
                thread::spawn(as_usual(|| assert_eq!(policy(), BATCH))).join().unwrap();
                assert_eq!(policy(), BATCH);
            });
        }

        #[test]
        fn a_thread_that_a_leader_starts_begins_as_usual() {
            on_a_thread(|_| {
                let _batch = Batch::begin().unwrap();
                thread::spawn(|| assert_eq!(policy(), BATCH)).join().unwrap();
                thread::spawn(as_usual(|| assert_eq!(policy(), USUAL))).join().unwrap();
            });
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    /// Nothing: there is no such policy here.
    #[derive(Debug)]
    pub(crate) enum Batch {}

    impl Batch {
        pub(crate) const fn begin() -> Option<Self> {
            None
        }
    }

    pub(crate) fn as_usual(body: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
        body
    }
}
