//! Contents that wait in files.

use std::sync::Arc;

use super::{Outcome, Worker};
use crate::budget::line::Entered;
use crate::budget::spool::Stored;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::task::Task;

impl Engine {
    /// From now on, threads of the pool close the long files of contents: see
    /// [`close_elsewhere`](Self::close_elsewhere).
    pub(crate) fn close_files_elsewhere(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        self.spool.space.close_by(move |stored| {
            // Without an engine, the file is closed here.
            if let Some(engine) = engine.upgrade() {
                engine.close_elsewhere(stored);
            }
        });
    }

    /// Lets a thread of the pool close the long file of a content, because the thread that drops it
    /// may lead a loop.
    fn close_elsewhere(self: &Arc<Self>, stored: Box<Stored>) {
        let Entered::Run(stored) = self.spool.closing.enter(None, stored) else { return };
        if let Err(refused) = self.pool.submit_urgent(Task::CloseFile(Arc::clone(self), stored)) {
            // The pool has ended, or has no thread for it.
            refused.task.run();
        }
    }

    /// Closes a file, then the files that have waited for a thread.
    pub(crate) fn close_files(&self, stored: Box<Stored>) {
        let mut next = Some(stored);
        while let Some(stored) = next {
            drop(stored);
            next = self.spool.closing.next();
        }
    }
}

impl Worker<'_> {
    /// Writes the collected part of a content to its file, on a thread of the pool. The connection
    /// then goes back to its loop, for the next part, the handler, or a refusal.
    pub(super) fn write_part(&mut self, mut connection: Box<Connection>) -> Outcome {
        let is_first = !connection.guest.has_file();
        let held = if is_first { self.hold_descriptor(&connection) } else { None };
        let Connection { guest, account, .. } = &mut *connection;
        if let Some(http) = guest.as_http_mut() {
            http.write_part(&self.engine.spool.space, account.client(), held);
        }
        self.unload(&mut connection);
        let is_writing = connection.is_writing();
        match connection.watch(is_writing) {
            Ok(()) => Outcome::Yielded(connection),
            Err(error) => self.give_up(connection, error),
        }
    }
}
