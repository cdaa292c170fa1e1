//! Linux's batch scheduling policy for the threads that lead event loops.
//!
//! Under the normal policy a thread that wakes up preempts another one. For a leader that is a
//! disadvantage: it finds one request where there would be several a moment later. The preempted
//! thread is often the one that is about to send them, such as a proxy or a load generator on the
//! same machine, or a handler that is about to answer. Under the batch policy (`sched(7)`) a leader
//! that wakes up waits for a free processor or for the end of a time slice. Its share of processor
//! time stays the same.
//!
//! Threads that run handlers keep the normal policy: a handler that waited for a database should
//! continue as soon as the data is there. If the program was started under another policy, it keeps
//! that policy, and the nice value is never changed. On other systems this module does nothing.
//! docs/decisions/0016 has the reasons, docs/benchmarks/tried.md the figures.

#[cfg(target_os = "linux")]
pub(crate) use linux::{Batch, with_normal_policy};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Batch, with_normal_policy};

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
        /// Whether a [`Batch`] has put this thread under the batch policy.
        static IS_BATCH: Cell<bool> = const { Cell::new(false) };
    }

    /// The batch policy for the current thread. Dropping it restores the normal policy.
    #[derive(Debug)]
    pub(crate) struct Batch(PhantomData<*const ()>);

    impl Batch {
        /// Sets the policy. Returns `None` if this thread has another policy than the normal one,
        /// or if the system denies the change.
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

    /// Wraps the body of a thread so that it begins under the normal policy even if a leader starts
    /// it. Threads inherit their policy.
    pub(crate) fn with_normal_policy(
        body: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let inherits = IS_BATCH.get();
        move || {
            if inherits {
                set(USUAL);
            }
            body();
        }
    }

    /// Sets the policy of this thread. Returns whether that succeeded.
    fn set(policy: Policy) -> bool {
        let policy = ThreadSchedulePolicy::Normal(policy);
        let Some(priority) = priority_as_it_is(policy) else { return false };
        let result = set_thread_priority_and_policy(thread_native_id(), priority, policy);
        if let Err(error) = &result {
            tracing::debug!(%error, ?policy, "a thread keeps its scheduling policy");
        }
        result.is_ok()
    }

    /// Returns the priority for the current nice value of this thread. A policy cannot be set
    /// without a priority.
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

        /// Runs a test on a thread of its own, because it changes the thread. Passes it the initial
        /// nice value. The test is skipped if the process runs under another policy or may not
        /// change it.
        fn on_a_thread(test: impl FnOnce(i32) + Send + 'static) {
            let may_change = thread::spawn(|| Batch::begin().is_some()).join().unwrap();
            if !may_change {
                return skip::because("this process may not use the batch policy");
            }
            thread::spawn(|| test(getpriority_process(None).unwrap())).join().unwrap();
        }

        #[test]
        fn a_thread_is_under_the_batch_policy_until_the_drop() {
            on_a_thread(|_| {
                let batch = Batch::begin().unwrap();
                assert_eq!(policy(), BATCH);
                drop(batch);
                assert_eq!(policy(), USUAL);
            });
        }

        #[test]
        fn a_nice_value_is_unchanged() {
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
        fn another_policy_is_kept() {
            on_a_thread(|_| {
                let idle = ThreadSchedulePolicy::Normal(Policy::Idle);
                // Also requests the nice value 0, the only one that the crate allows for this
                // policy. If the process may not change its nice value, the policy is set all the
                // same.
                let _ =
                    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
                assert_eq!(policy(), Policy::Idle);
                assert!(Batch::begin().is_none());
                assert_eq!(policy(), Policy::Idle);
            });
            on_a_thread(|_| {
                assert!(set(BATCH));
                assert!(Batch::begin().is_none());
                thread::spawn(with_normal_policy(|| assert_eq!(policy(), BATCH))).join().unwrap();
                assert_eq!(policy(), BATCH);
            });
        }

        #[test]
        fn a_thread_that_a_leader_starts_begins_under_the_normal_policy() {
            on_a_thread(|_| {
                let _batch = Batch::begin().unwrap();
                thread::spawn(|| assert_eq!(policy(), BATCH)).join().unwrap();
                thread::spawn(with_normal_policy(|| assert_eq!(policy(), USUAL))).join().unwrap();
            });
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    /// The batch policy does not exist on this system.
    #[derive(Debug)]
    pub(crate) enum Batch {}

    impl Batch {
        pub(crate) const fn begin() -> Option<Self> {
            None
        }
    }

    pub(crate) fn with_normal_policy(
        body: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        body
    }
}
