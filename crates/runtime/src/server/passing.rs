//! Sockets in messages between two processes of one program (`SCM_RIGHTS`).
//!
//! Each message is a header of fixed length, with one socket beside it, and the bytes that were
//! read from it and not used.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use socket2::SockRef;

use crate::engine::connection::Connection;
use crate::engine::handover::Resumed;
use crate::engine::listener::{Accepted, Entry};
use crate::protocol::Guest;
use crate::transport::{Peer, Transport};

/// Apple's systems have neither flag. A Rust program ignores the signal, and the descriptor is told
/// afterwards that it is closed in other programs.
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::empty();
#[cfg(target_vendor = "apple")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_vendor = "apple"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// Kind, flags, address family, unused, port, unused, length of the leftover, address.
const HEADER_BYTES: usize = 28;

/// Maximum number of unused bytes that a connection may have: more than the longest head.
const LEFTOVER_MAX: usize = 16 * 1024 * 1024;

const LISTENER: u8 = 1;
const CONTROL: u8 = 2;
const CONNECTION: u8 = 3;
const END: u8 = 4;

const EXPECTS_PROXY_HEADER: u8 = 1;

/// What a message contains.
#[derive(Debug)]
pub(super) enum Item {
    Listener(OwnedFd),
    /// The control socket.
    Control(OwnedFd),
    Connection(Resumed),
    /// There are no further listeners.
    End,
}

pub(super) fn send_socket(
    stream: &UnixStream,
    socket: BorrowedFd<'_>,
    is_control: bool,
) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    header[0] = if is_control { CONTROL } else { LISTENER };
    send(stream, &header, Some(socket))
}

pub(super) fn send_end(stream: &UnixStream) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    header[0] = END;
    send(stream, &header, None)
}

pub(super) fn send_connection(mut stream: &UnixStream, connection: &Connection) -> io::Result<()> {
    let leftover = connection.leftover.as_slice();
    let mut header = [0; HEADER_BYTES];
    header[0] = CONNECTION;
    if matches!(connection.guest, Guest::Preamble(_)) {
        header[1] = EXPECTS_PROXY_HEADER;
    }
    if let Peer::Tcp(address) = connection.peer {
        let bytes = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        header[2] = if address.is_ipv4() { 4 } else { 6 };
        header[4..6].copy_from_slice(&address.port().to_le_bytes());
        header[12..28].copy_from_slice(&bytes);
    }
    let length = u32::try_from(leftover.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    header[8..12].copy_from_slice(&length.to_le_bytes());
    send(stream, &header, Some(connection.transport.as_fd()))?;
    stream.write_all(leftover)
}

fn send(mut stream: &UnixStream, header: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = loop {
        match sendmsg(stream, &[IoSlice::new(header)], &mut control, SEND_FLAGS) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result?,
        }
    };
    // The socket goes with the first byte.
    stream.write_all(&header[sent..])
}

/// Receives the next message. The sender runs as the same user, and is still not trusted to send
/// what this version expects.
pub(super) fn receive(stream: &mut UnixStream) -> io::Result<Item> {
    let mut header = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let parts = &mut [IoSliceMut::new(&mut header)];
        match recvmsg(&*stream, parts, &mut control, RECEIVE_FLAGS) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result?.bytes,
        }
    };
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut socket = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sockets) = message {
            socket = sockets.last();
            #[cfg(target_vendor = "apple")]
            if let Some(socket) = &socket {
                rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC)?;
            }
        }
    }
    stream.read_exact(&mut header[received..])?;
    let socket = socket.ok_or(io::ErrorKind::InvalidData);
    match header[0] {
        LISTENER => Ok(Item::Listener(socket?)),
        CONTROL => Ok(Item::Control(socket?)),
        CONNECTION => receive_connection(stream, &header, socket?).map(Item::Connection),
        END => Ok(Item::End),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn receive_connection(
    stream: &mut UnixStream,
    header: &[u8; HEADER_BYTES],
    socket: OwnedFd,
) -> io::Result<Resumed> {
    let [_, flags, family, _, port @ ..] = *header;
    let port = u16::from_le_bytes([port[0], port[1]]);
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let mut address = [0; 16];
    address.copy_from_slice(&header[12..]);
    if length > LEFTOVER_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut leftover = vec![0; length];
    stream.read_exact(&mut leftover)?;
    let ip = Ipv6Addr::from(address);
    let peer = match family {
        0 => Peer::Unix,
        4 => Peer::Tcp(SocketAddr::new(IpAddr::from(ip).to_canonical(), port)),
        _ => Peer::Tcp(SocketAddr::new(ip.into(), port)),
    };
    // The peer may be a TCP client that a proxy at a Unix socket has named.
    let transport = if SockRef::from(&socket).local_addr()?.is_unix() {
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Transport::unix(mio::net::UnixStream::from_std(socket))
    } else {
        let socket = std::net::TcpStream::from(socket);
        socket.set_nonblocking(true)?;
        Transport::tcp(mio::net::TcpStream::from_std(socket))
    };
    let expects_proxy_header = flags & EXPECTS_PROXY_HEADER != 0;
    let entry = Entry {
        expects_proxy_header,
        #[cfg(feature = "tls")]
        tls: None,
    };
    Ok(Resumed { accepted: Accepted { transport, peer, entry, place: None }, leftover })
}
