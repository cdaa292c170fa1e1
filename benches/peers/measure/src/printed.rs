//! A report that grows: each part is printed at once, and kept.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The text that was printed so far.
#[derive(Debug)]
pub struct Printed<'a> {
    /// A file to which each part is also written.
    file: Option<&'a Path>,
    pub text: String,
}

impl<'a> Printed<'a> {
    pub fn new(file: Option<&'a Path>) -> Self {
        Self { file, text: String::new() }
    }

    pub fn add(&mut self, part: &str) -> io::Result<()> {
        print!("{part}");
        io::stdout().flush()?;
        if let Some(path) = self.file {
            OpenOptions::new().create(true).append(true).open(path)?.write_all(part.as_bytes())?;
        }
        self.text.push_str(part);
        Ok(())
    }
}
