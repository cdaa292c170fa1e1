//! A raw TCP service's connection, from its bytes to its next wait.

use std::sync::Arc;

use super::call::{Conduct, run};
use super::serve::{Filled, ROUNDS_MAX};
use super::{Go, Outcome, Worker};
use crate::connection::Connection;
use crate::connection::unsent::Flushed;
use crate::engine::Answerer;
use crate::execution::key::{Execution, ExecutionKey, Route};
use crate::protocol::http::Http;
use crate::protocol::tcp::{Event, Step};
use crate::service::Site;
use crate::tcp::{Asked, Borrowed, Closed};

/// All of a service is one route: it blocks, or it does not. Services over HTTP number theirs from zero.
fn route() -> Route {
    Route { key: ExecutionKey::numbered(u32::MAX), execution: Execution::Learned }
}

impl Worker<'_> {
    /// Works on a connection of a raw service until it has to wait.
    #[inline(never)]
    pub(super) fn serve_tcp(&mut self, mut connection: Box<Connection>) -> Outcome {
        if connection.is_writing() {
            match self.flush(&mut connection) {
                Ok(Flushed::All) => {}
                Ok(Flushed::Some) => return self.wait_tcp(connection),
                Err(error) => return self.give_up(connection, error),
            }
        }
        let mut rounds = 0;
        loop {
            let Some(tcp) = &mut connection.tcp else { return Outcome::Closed(connection) };
            let step = tcp.step(self.buffers);
            // What a protocol may have come again without a byte from its peer, and bytes: others have their turn between.
            if let Step::Call(Event::Open | Event::Drained) | Step::Read = step {
                let goes_on = connection.can_read || !matches!(step, Step::Read);
                if self.lead.is_some() && rounds == ROUNDS_MAX && goes_on {
                    return self.yielded(connection);
                }
                rounds += 1;
            }
            let go = match step {
                Step::Call(event) if self.runs_here(route(), None) => self.tell(connection, event),
                Step::Read => self.read_tcp(connection),
                step => self.step_tcp(connection, step),
            };
            match go {
                Go::On(next) => connection = next,
                Go::Away(outcome) => return outcome,
            }
        }
    }

    /// What is not needed for each message.
    #[inline(never)]
    fn step_tcp(&mut self, mut connection: Box<Connection>, step: Step) -> Go {
        let outcome = match step {
            Step::Again | Step::Read => return Go::On(connection),
            Step::Peer(address) if self.is_named(&mut connection, address) => return Go::On(connection),
            Step::Peer(_) => Outcome::Closed(connection),
            Step::RefuseProxy(error) => self.refuse_proxy(connection, error),
            Step::Call(_) => return self.resume_elsewhere(connection),
            Step::Flush => match self.flush_now(&mut connection) {
                Ok(Flushed::All) => return Go::On(connection),
                Ok(Flushed::Some) => self.wait_tcp(connection),
                Err(error) => self.give_up(connection, error),
            },
            Step::Wait => self.wait_tcp(connection),
            Step::Linger(reason) => return self.linger_tcp(connection, reason),
            Step::Detach(handler) => self.detach(connection, handler),
            Step::Become(site) => self.become_http(connection, site),
            Step::Close => match self.flush_now(&mut connection) {
                Ok(Flushed::All) => Outcome::Closed(connection),
                Ok(Flushed::Some) => self.wait_tcp(connection),
                Err(error) => self.give_up(connection, error),
            },
        };
        Go::Away(outcome)
    }

    #[inline(always)]
    fn read_tcp(&mut self, mut connection: Box<Connection>) -> Go {
        match self.flush_now(&mut connection) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Some) => return Go::Away(self.wait_tcp(connection)),
            Err(error) => return Go::Away(self.give_up(connection, error)),
        }
        if !connection.can_read {
            let is_draining = self.engine.is_draining();
            return match &mut connection.tcp {
                Some(tcp) if is_draining && tcp.is_idle() => {
                    tcp.close(Closed::Shutdown);
                    Go::On(connection)
                }
                _ => Go::Away(self.wait_tcp(connection)),
            };
        }
        let before = self.buffers.input.len();
        let filled = self.read_input(&mut connection);
        let Some(tcp) = &mut connection.tcp else { return Go::Away(Outcome::Closed(connection)) };
        match filled {
            Ok(Filled::Some { may_have_more }) => {
                tcp.has_read(self.buffers.input.len() - before);
                connection.can_read = may_have_more || connection.has_end;
            }
            Ok(Filled::Nothing) => connection.can_read = false,
            Ok(Filled::End) => tcp.end_of_input(),
            Err(error) => return Go::Away(self.give_up(connection, error)),
        }
        Go::On(connection)
    }

    /// Has the protocol called, with the loop in its slot meanwhile, and sends what it says.
    #[inline(always)]
    fn tell(&mut self, mut connection: Box<Connection>, event: Event) -> Go {
        let Self { engine, buffers, lead, clocks, .. } = self;
        let Answerer::Tcp(service) = &engine.answerer else {
            return Go::Away(Outcome::Closed(connection));
        };
        let Some(mut tcp) = connection.tcp.take() else { return Go::Away(Outcome::Closed(connection)) };
        let mut asked = Asked::default();
        let mut used = 0;
        let of = (&connection.peer, connection.home(), connection.token());
        let (result, conduct) = run(lead, clocks, engine, connection.home(), route(), || {
            used = tcp.call(event, &**service, of, &mut asked, buffers);
        });
        self.take_note(&mut connection, conduct);
        if result.is_err() {
            tcp.break_off(Closed::Panicked);
            // Half of an answer, perhaps.
            self.buffers.output.clear();
            connection.tcp = Some(tcp);
            return Go::On(connection);
        }
        let Borrowed(sent_back) = tcp.called(event, used, &mut asked, self.buffers, &self.engine.config);
        connection.tcp = Some(tcp);
        let flushed = if sent_back > 0 {
            connection.send_back(sent_back, self.buffers, &self.engine.config)
        } else {
            self.flush_now(&mut connection)
        };
        self.buffers.input.consume(used - sent_back);
        match flushed {
            Ok(Flushed::All) => Go::On(connection),
            Ok(Flushed::Some) => Go::Away(self.wait_tcp(connection)),
            Err(error) => Go::Away(self.give_up(connection, error)),
        }
    }

    /// Ends our direction and goes on reading what the peer still sends.
    fn linger_tcp(&mut self, mut connection: Box<Connection>, reason: Closed) -> Go {
        match self.flush(&mut connection) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Some) => return Go::Away(self.wait_tcp(connection)),
            Err(error) => return Go::Away(self.give_up(connection, error)),
        }
        if let Err(error) = connection.transport.shutdown_write() {
            return Go::Away(self.give_up(connection, error));
        }
        let until = self.buffers.clock.now() + self.engine.config.linger_timeout;
        if let Some(tcp) = &mut connection.tcp {
            tcp.linger(reason, until);
        }
        connection.can_read = true;
        Go::On(connection)
    }

    /// Goes on in HTTP, as on a connection that has just been accepted, with what was read already.
    #[cold]
    fn become_http(&mut self, mut connection: Box<Connection>, site: Arc<Site>) -> Outcome {
        connection.tcp = None;
        connection.site = Some(site);
        connection.http = Http::new();
        connection.deadline = self.buffers.clock.now() + self.engine.config.head_timeout;
        // The end of what the peer sends may have been read, and is to be read again.
        connection.can_read = true;
        self.serve(connection)
    }

    /// Leaves a connection to its peer, or to those who send to it.
    #[inline(always)]
    pub(super) fn wait_tcp(&mut self, mut connection: Box<Connection>) -> Outcome {
        let deadline = match (&connection.unsent, &connection.tcp) {
            (Some(unsent), _) => Some(unsent.deadline()),
            (None, Some(tcp)) => tcp.deadline(self.buffers.clock.now(), &self.engine.config),
            (None, None) => None,
        };
        if let Some(deadline) = deadline {
            connection.deadline = deadline;
        }
        self.leave(connection)
    }

    /// Tells the protocol that its connection is over: code of the program, which may block like any other.
    #[cold]
    pub(super) fn end_tcp(&mut self, connection: &mut Connection) {
        let Some((mut protocol, reason)) = connection.tcp.take().and_then(|mut tcp| tcp.take_protocol())
        else {
            return;
        };
        let Self { engine, lead, clocks, .. } = self;
        let (_, conduct) =
            run(lead, clocks, engine, connection.home(), route(), move || protocol.close(reason));
        if conduct == Conduct::Blocked {
            self.buffers.clock.refresh();
        }
    }
}
