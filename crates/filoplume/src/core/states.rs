//! Values that an app or a router was given.

use std::any::{Any, TypeId};
use std::sync::Arc;

use super::names::type_name_of;

/// Values by type. There are few: a row is faster than a map.
#[derive(Clone, Default)]
pub(crate) struct States {
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    /// The names of their types, in the same order.
    names: Vec<String>,
}

/// A value that all threads may use.
///
/// It stands for `Send + Sync` where a state is given or taken, so that the compiler's message is
/// about states: that of `Sync` recommends an `RwLock`, which does not help with a connection.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a state: threads cannot share it",
    label = "it is not `Send + Sync`",
    note = "a connection that is not `Sync`, such as `rusqlite::Connection`, belongs in a pool: \
            `.state(pool)` with `State(pool): State<Pool>`; a single connection goes into an \
            `Arc<Mutex<..>>`",
    note = "`Rc` becomes `Arc`, `Cell` an atomic, and `RefCell` a `Mutex`"
)]
pub trait Shared: Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync> Shared for T {}

impl States {
    /// Adds a value; returns the name of its type if there was one of that type already.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> Option<String> {
        let id = TypeId::of::<T>();
        let is_taken = self.has(id);
        self.values.push((id, Arc::new(value)));
        self.names.push(type_name_of::<T>());
        is_taken.then(type_name_of::<T>)
    }

    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        let (_, value) = self.values.iter().find(|(of, _)| *of == id)?;
        value.downcast_ref()
    }

    /// The types of the values, the nearest first.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn has(&self, id: TypeId) -> bool {
        self.values.iter().any(|(of, _)| *of == id)
    }

    /// Puts those of an outer router behind, so that the inner ones are found first.
    pub(crate) fn extend_outer(&mut self, outer: &Self) {
        self.values.extend(outer.values.iter().cloned());
        self.names.extend_from_slice(&outer.names);
    }
}
