//! The examples of Filoplume: see the files beside `src`, one a task.
