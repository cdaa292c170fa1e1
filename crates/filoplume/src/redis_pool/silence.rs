//! Whether a server has stopped answering, so that not everyone waits for it.
//!
//! Each command to a server that hangs blocks its thread for the whole time-out. As soon as one
//! command has timed out, and none that ran at the same time was answered, the server counts as
//! silent. From then on one command at a time tries, and all others fail at once, until a command
//! is answered, even with an error. A server that refuses connections counts as answering.

use parking_lot::Mutex;

/// What is known about the answers of a server.
#[derive(Debug, Default)]
pub(super) struct Silence(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many answers have come.
    answers: u64,
    is_silent: bool,
    /// Whether a command tries the silent server.
    is_tried: bool,
}

/// The right to send a command. If it is dropped without [`answered`](Self::answered), the command
/// was not answered in time.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    silence: &'a Silence,
    /// The number of answers when the command began.
    answers: u64,
    tries: bool,
}

impl Silence {
    /// Begins a command. Returns `None` if the server is silent and another command tries it.
    pub(super) fn begin(&self) -> Option<Attempt<'_>> {
        let mut state = self.0.lock();
        if state.is_silent && state.is_tried {
            return None;
        }
        state.is_tried = state.is_silent;
        Some(Attempt { silence: self, answers: state.answers, tries: state.is_silent })
    }
}

impl Attempt<'_> {
    /// Ends a command that was answered, or that has failed before its time was over.
    pub(super) fn answered(self) {
        let mut state = self.silence.0.lock();
        state.answers += 1;
        state.is_silent = false;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = self.silence.0.lock();
        if self.tries {
            state.is_tried = false;
        }
        if state.answers == self.answers {
            state.is_silent = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_at_a_time_tries_a_silent_server() {
        let silence = Silence::default();
        let (first, second) = (silence.begin().unwrap(), silence.begin().unwrap());
        drop(first);
        let tries = silence.begin().unwrap();
        assert!(silence.begin().is_none(), "one tries already");
        drop(second);
        assert!(silence.begin().is_none(), "what began before the silence is no attempt");
        drop(tries);
        let tries = silence.begin().unwrap();
        assert!(silence.begin().is_none());
        tries.answered();
        let (_first, _second) = (silence.begin().unwrap(), silence.begin().unwrap());
    }

    #[test]
    fn one_slow_answer_among_others_is_no_silence() {
        let silence = Silence::default();
        let slow = silence.begin().unwrap();
        silence.begin().unwrap().answered();
        drop(slow);
        let (_first, _second) = (silence.begin().unwrap(), silence.begin().unwrap());
    }

    #[test]
    fn an_answer_to_what_began_before_ends_the_silence() {
        let silence = Silence::default();
        let (late, lost) = (silence.begin().unwrap(), silence.begin().unwrap());
        drop(lost);
        let tries = silence.begin().unwrap();
        late.answered();
        let others = [silence.begin().unwrap(), silence.begin().unwrap()];
        drop(tries);
        for other in others {
            assert!(!other.tries);
            other.answered();
        }
        let (_first, _second) = (silence.begin().unwrap(), silence.begin().unwrap());
    }
}
