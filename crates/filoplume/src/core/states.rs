//! The states of an app or a router.

use std::any::{Any, TypeId};
use std::panic::Location;
use std::sync::Arc;

use super::names::type_name_of;

/// Values by type. There are only a few, so a list is faster than a map.
#[derive(Clone, Default)]
pub(crate) struct States {
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    /// The names of the types, in the same order.
    names: Vec<String>,
    /// The lines that added the values, in the same order.
    written_at: Vec<&'static Location<'static>>,
}

/// A value that threads can share.
///
/// It replaces `Send + Sync` in the bounds of states, so that the compiler's message is about
/// states. The message of `Sync` recommends an `RwLock`, which does not help with a connection.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a state: threads cannot share it",
    label = "it is not `Send + Sync`",
    note = "a connection that is not `Sync`, such as `rusqlite::Connection`, belongs in a pool: \
            pass the pool to `.state(..)` and extract it with `State(pool): State<Pool>`; put a \
            single connection into an `Arc<Mutex<..>>`",
    note = "use `Arc` in place of `Rc`, an atomic in place of `Cell`, a `Mutex` in place of \
            `RefCell`"
)]
pub trait Shared: Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync> Shared for T {}

/// A value that an extractor can copy from the states.
///
/// It replaces `Clone` in the bound of [`State`](crate::State), so that the compiler's message is
/// about states.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not `Clone`, so it cannot be extracted as `State<{Self}>`: share it as \
               `State<Arc<{Self}>>`, with `.state(Arc::new(value))`",
    label = "each request gets a clone of the state",
    note = "the type is the same in both places: `.state(Arc::new(value))` and \
            `State(value): State<Arc<T>>`; a struct whose fields are `Clone` can have \
            `#[derive(Clone)]` instead"
)]
pub trait CloneState: Clone {}

#[diagnostic::do_not_recommend]
impl<T: Clone> CloneState for T {}

impl States {
    /// Adds a value. If there is one of that type already, returns the line that added it.
    pub(crate) fn insert<T: Send + Sync + 'static>(
        &mut self,
        value: T,
        written_at: &'static Location<'static>,
    ) -> Option<&'static Location<'static>> {
        let id = TypeId::of::<T>();
        let taken = self.values.iter().position(|(of, _)| *of == id);
        let first = taken.and_then(|index| self.written_at.get(index)).copied();
        self.values.push((id, Arc::new(value)));
        self.names.push(type_name_of::<T>());
        self.written_at.push(written_at);
        first
    }

    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        let (_, value) = self.values.iter().find(|(of, _)| *of == id)?;
        value.downcast_ref()
    }

    /// Returns the names of the types, those of inner routers first.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn has(&self, id: TypeId) -> bool {
        self.values.iter().any(|(of, _)| *of == id)
    }

    /// Appends the states of an outer router, so that the inner ones are found first.
    pub(crate) fn extend_outer(&mut self, outer: &Self) {
        self.values.extend(outer.values.iter().cloned());
        self.names.extend_from_slice(&outer.names);
        self.written_at.extend_from_slice(&outer.written_at);
    }
}
