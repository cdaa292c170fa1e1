//! Tests of a transport: how its connection ends, and what lies between a session and its socket.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

pub(crate) mod client;

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixStream as StdUnixStream;

use rustls::ContentType;
use rustls::version::TLS13;

use self::client::{Client, connect};
use super::session::Wire;
use super::*;

/// Returns a transport with a session, its peer, and the client of the session.
fn secured() -> (Transport, StdUnixStream, Client) {
    let (socket, peer) = StdUnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut transport = Transport::unix(UnixStream::from_std(socket));
    let (records, client) = connect(&TLS13);
    transport.secure(client::session(records));
    (transport, peer, client)
}

/// Returns what has arrived at the peer.
fn arrived(peer: &mut StdUnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = peer.read_to_end(&mut bytes);
    bytes
}

fn socket(transport: &Transport) -> SockRef<'_> {
    each!(&transport.socket, socket => SockRef::from(socket))
}

#[test]
fn the_end_of_a_session_is_announced() {
    let (mut transport, mut peer, mut client) = secured();
    assert!(!transport.farewell());
    assert_eq!(client.open(&arrived(&mut peer)), (Vec::new(), true));

    let (mut transport, mut peer, mut client) = secured();
    transport.farewell_with_next_write();
    assert_eq!(transport.write(b"content").unwrap(), 7);
    assert_eq!(client.open(&arrived(&mut peer)), (b"content".to_vec(), true));

    let (mut transport, mut peer, mut client) = secured();
    transport.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.open(&arrived(&mut peer)), (Vec::new(), true));
}

#[test]
fn a_connection_that_is_reset_does_not_look_complete() {
    let (mut transport, mut peer, mut client) = secured();
    transport.set_resets(true);
    transport.farewell_with_next_write();
    assert_eq!(transport.write(b"content").unwrap(), 7);
    assert!(!transport.farewell());
    assert_eq!(client.open(&arrived(&mut peer)), (b"content".to_vec(), false));
}

#[test]
fn a_drop_resets_the_connection_only_if_that_is_asked_for() {
    for resets in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut transport = Transport::tcp(TcpStream::from_std(listener.accept().unwrap().0));
        transport.set_resets(resets);
        drop(transport);
        let ended = peer.read(&mut [0]).map_err(|error| error.kind());
        let expected = if resets { Err(io::ErrorKind::ConnectionReset) } else { Ok(0) };
        assert_eq!(ended, expected);
    }
}

#[test]
fn a_blocking_socket_has_its_timeout_in_both_directions() {
    let (transport, _peer, _) = secured();
    transport.set_blocking(Duration::from_secs(7)).unwrap();
    let timeout = Some(Duration::from_secs(7));
    let of = socket(&transport);
    assert_eq!((of.read_timeout().unwrap(), of.write_timeout().unwrap()), (timeout, timeout));
    assert_eq!((of.nonblocking().unwrap(), transport.patience()), (false, timeout));
    transport.set_nonblocking().unwrap();
    assert_eq!((of.nonblocking().unwrap(), transport.patience()), (true, None));
    transport.set_blocking(None).unwrap();
    assert_eq!((of.nonblocking().unwrap(), transport.patience()), (false, None));
}

#[test]
fn a_farewell_at_once_does_not_wait_for_the_peer() {
    let (mut transport, mut peer, mut client) = secured();
    transport.set_blocking(None).unwrap();
    transport.farewell_at_once();
    assert!(socket(&transport).nonblocking().unwrap());
    assert_eq!(client.open(&arrived(&mut peer)), (Vec::new(), true));
}

#[test]
fn bytes_that_a_session_holds_are_unread_although_the_socket_has_none() {
    let (mut transport, mut peer, mut client) = secured();
    assert!(!transport.has_unread());
    peer.write_all(&client.seal(b"content")).unwrap();
    assert!(transport.has_unread(), "the socket has them");
    assert_eq!(transport.read(&mut [0; 3]).unwrap(), 3);
    assert!(transport.receive(&mut [0]).is_err(), "the session has them");
    assert!(transport.has_unread() && transport.held_bytes() > 0);
    assert_eq!(transport.read(&mut [0; 9]).unwrap(), 4);
    assert_eq!(transport.held_bytes(), 0);
}

#[test]
fn a_second_handle_has_the_session_too() {
    let (mut transport, mut peer, mut client) = secured();
    assert_eq!(transport.second_handle().unwrap_err().kind(), io::ErrorKind::Unsupported);
    transport.share();
    let mut second = transport.second_handle().unwrap();
    assert_eq!(second.write(b"sealed").unwrap(), 6);
    assert_eq!(client.open(&arrived(&mut peer)).0, b"sealed");
    peer.write_all(&client.seal(b"opened")).unwrap();
    let mut buffer = [0; 9];
    assert_eq!(transport.read(&mut buffer).unwrap(), 6);
    assert_eq!(&buffer[..6], b"opened");
}

#[test]
fn a_session_that_has_failed_in_the_middle_of_a_message_ends_without_a_panic() {
    let (mut transport, mut peer, client) = secured();
    let mut client = client.into_sealer();
    peer.write_all(&client.seal(ContentType::Handshake, &[24])).unwrap();
    assert!(is_would_block(&transport.read(&mut [0; 9]).unwrap_err()));
    peer.write_all(&client.seal(ContentType::ApplicationData, b"x")).unwrap();
    let error = transport.read(&mut [0; 9]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(transport.write(b"response").unwrap_err().kind(), io::ErrorKind::InvalidData);
    transport.farewell_at_once();
    assert_eq!(arrived(&mut peer), b"");
}
