//! In place of [`tls`](crate::tls) in a program without it: no session can begin.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::path::PathBuf;

/// The settings of TLS from the command line.
#[expect(dead_code, reason = "it is for the program with TLS")]
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    pub(crate) files: TlsFiles,
    pub(crate) is_insecure: bool,
    pub(crate) is_always_full: bool,
}

/// The files that the command line names.
#[expect(dead_code, reason = "they are for the program with TLS")]
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// There is no TLS, so this has no value.
#[derive(Clone, Debug)]
pub(crate) struct Tls(Infallible);

/// There is no TLS, so this has no value.
#[derive(Debug)]
pub(crate) struct TlsStream<S> {
    never: Infallible,
    socket: PhantomData<S>,
}

impl Tls {
    pub(crate) fn new(_: &str, _: &TlsSettings) -> Result<Self, String> {
        Err("https:// and wss:// need TLS, and this program was built without the feature `tls`"
            .to_owned())
    }

    pub(crate) fn begin<S>(&self, _: S) -> io::Result<TlsStream<S>> {
        match self.0 {}
    }
}

impl<S> TlsStream<S> {
    pub(crate) fn socket(&self) -> &S {
        match self.never {}
    }

    pub(crate) fn socket_mut(&mut self) -> &mut S {
        match self.never {}
    }

    pub(crate) fn is_resumed(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        match self.never {}
    }
}

impl<S> Read for TlsStream<S> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.never {}
    }
}

impl<S> Write for TlsStream<S> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.never {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.never {}
    }
}
