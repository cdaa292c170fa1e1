//! The floor of a broadcast: accepts WebSockets, never reads from them, and writes the same bytes
//! to all of them, one after the other, on one thread: `live_raw ADDRESS`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{BROADCAST_EVERY, address_argument, broadcast_text};
use sha1::{Digest, Sha1};

type Sockets = Arc<Mutex<Vec<TcpStream>>>;

/// Reads the handshake, and answers it (RFC 6455, 4.2.2).
fn shake_hands(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then_some(value.trim())
    });
    let key = key.ok_or(ErrorKind::InvalidData)?;
    let accept =
        STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {accept}\r\n\r\n"
    )
}

/// A text frame without a mask.
fn frame(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("a broadcast has 1 KiB");
    let mut frame = vec![0x81, 126];
    frame.extend(length.to_be_bytes());
    frame.extend(text.as_bytes());
    frame
}

fn broadcast(sockets: &Sockets) {
    loop {
        thread::sleep(BROADCAST_EVERY);
        let frame = frame(&broadcast_text());
        let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
        // The clients of a measurement read: the buffer of a socket is never full.
        sockets
            .retain_mut(|socket| matches!(socket.write(&frame), Ok(sent) if sent == frame.len()));
    }
}

fn main() -> io::Result<()> {
    let sockets = Sockets::default();
    let all = Arc::clone(&sockets);
    thread::spawn(move || broadcast(&all));
    for stream in TcpListener::bind(address_argument())?.incoming() {
        let mut stream = stream?;
        // A client that leaves in the middle of its handshake is not served.
        if shake_hands(&mut stream).is_ok() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            sockets.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        }
    }
    Ok(())
}
