//! The engine of Filoplume.
