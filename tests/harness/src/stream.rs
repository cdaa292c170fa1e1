//! Plain sockets: what arrives on them, and how they end.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

/// Reads this many bytes.
#[track_caller]
pub fn receive(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads to the end of the connection, which may be a reset.
#[track_caller]
pub fn is_cut_off(client: &mut TcpStream) {
    let mut rest = Vec::new();
    match client.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}
