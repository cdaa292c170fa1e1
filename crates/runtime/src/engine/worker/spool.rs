//! Contents that wait in files.

use super::{Outcome, Worker};
use crate::engine::connection::Connection;

impl Worker<'_> {
    /// Writes the collected part of a content to its file, on a thread of the pool. The connection
    /// then goes back to its loop, for the next part, the handler, or a refusal.
    pub(super) fn write_part(&mut self, mut connection: Box<Connection>) -> Outcome {
        let Connection { guest, place, .. } = &mut *connection;
        if let Some(http) = guest.as_http_mut() {
            http.write_part(&self.engine.spool.space, place.as_ref());
        }
        self.unload(&mut connection);
        let is_writing = connection.is_writing();
        match connection.watch(is_writing) {
            Ok(()) => Outcome::Yielded(connection),
            Err(error) => self.give_up(connection, error),
        }
    }
}
