//! Sockets in messages between two processes of one program (`SCM_RIGHTS`).
//!
//! Each message is a header of fixed length, with at most one socket beside it. For a connection,
//! it is followed by the bytes that were read from the socket and not used.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use socket2::SockRef;

use crate::budget::clients::CountsFor;
use crate::engine::connection::Connection;
use crate::engine::handover::Resumed;
use crate::engine::listener::{Accepted, Entry};
use crate::protocol::{Guest, Waiting};
use crate::transport::{Peer, Transport};

/// Apple's systems have neither flag. A Rust program ignores `SIGPIPE` anyway, and close-on-exec is
/// set after the descriptor was received.
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::empty();
#[cfg(target_vendor = "apple")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_vendor = "apple"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// The fields of a header are: kind, flags, address family, format, port, unused, a number,
/// address, remaining time of a head in milliseconds. The number is the length of the leftover, or
/// how many connections to expect.
const HEADER_BYTES: usize = 32;

/// The version of the format. It must change with the messages, because the two processes may be of
/// different versions.
const FORMAT: u8 = 1;

/// Maximum number of unused bytes that a connection may have: more than the longest head.
const LEFTOVER_MAX: usize = 16 * 1024 * 1024;

const LISTENER: u8 = 1;
const CONTROL: u8 = 2;
const CONNECTION: u8 = 3;
const END: u8 = 4;

const EXPECTS_PROXY_HEADER: u8 = 1;
const HAS_BEGUN: u8 = 2;

/// What a message contains.
#[derive(Debug)]
pub(super) enum Item {
    Listener(OwnedFd),
    /// The control socket.
    Control(OwnedFd),
    Connection(Resumed),
    /// There are no further listeners. The sender has about this many connections.
    End {
        connections: usize,
    },
}

pub(super) fn send_socket(
    stream: &UnixStream,
    socket: BorrowedFd<'_>,
    is_control: bool,
) -> io::Result<()> {
    let header = header_of(if is_control { CONTROL } else { LISTENER });
    send(stream, &header, Some(socket))
}

pub(super) fn send_end(stream: &UnixStream, connections: usize) -> io::Result<()> {
    let mut header = header_of(END);
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    header[8..12].copy_from_slice(&connections.to_le_bytes());
    send(stream, &header, None)
}

pub(super) fn send_connection(mut stream: &UnixStream, connection: &Connection) -> io::Result<()> {
    let leftover = connection.leftover.as_slice();
    let mut header = header_of(CONNECTION);
    if matches!(connection.guest, Guest::Preamble(_)) {
        header[1] |= EXPECTS_PROXY_HEADER;
    }
    // The deadline of a head does not move any more, and restarts must not extend it.
    if connection.guest.waits_for(!leftover.is_empty()) == Waiting::Head {
        header[1] |= HAS_BEGUN;
        let remaining = connection.deadline.saturating_duration_since(Instant::now()).as_millis();
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        header[28..32].copy_from_slice(&remaining.to_le_bytes());
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

fn header_of(kind: u8) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = kind;
    header[3] = FORMAT;
    header
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
    // The socket was sent with the first byte.
    stream.write_all(&header[sent..])
}

/// Receives the next message. The sender runs as the same user, but is not trusted to send what
/// this version expects.
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
    if header[3] != FORMAT {
        let reason = "the running process hands over in another format: stop it before this start";
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let socket = socket.ok_or(io::ErrorKind::InvalidData);
    match header[0] {
        LISTENER => Ok(Item::Listener(socket?)),
        CONTROL => Ok(Item::Control(socket?)),
        CONNECTION => receive_connection(stream, &header, socket?).map(Item::Connection),
        END => Ok(Item::End { connections: number_of(&header, 8) as usize }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn number_of(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn receive_connection(
    stream: &mut UnixStream,
    header: &[u8; HEADER_BYTES],
    socket: OwnedFd,
) -> io::Result<Resumed> {
    let [_, flags, family, _, port @ ..] = *header;
    let port = u16::from_le_bytes([port[0], port[1]]);
    let length = number_of(header, 8) as usize;
    let mut address = [0; 16];
    address.copy_from_slice(&header[12..28]);
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
    // The peer's address does not tell the kind of the socket: it may be that of a TCP client,
    // named by a proxy at a Unix socket.
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
    let remaining = Duration::from_millis(number_of(header, 28).into());
    let head_ends_in = (flags & HAS_BEGUN != 0).then_some(remaining);
    let accepted = Accepted { transport, peer, entry, counts_for: CountsFor::Nobody };
    Ok(Resumed { accepted, leftover, head_ends_in })
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::buffers::Content;
    use crate::engine::connection::tests::{accept, over};
    use crate::engine::tests::serving;
    use crate::service::response::Response;

    /// Sends one header with a socket, and returns what is received.
    fn passed(header: &[u8; HEADER_BYTES]) -> io::Result<Item> {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let (old, mut new) = UnixStream::pair().unwrap();
        send(&old, header, Some(socket.as_fd())).unwrap();
        drop(old);
        receive(&mut new)
    }

    #[test]
    fn another_format_is_refused_before_anything_is_read_from_it() {
        let mut header = header_of(LISTENER);
        assert!(matches!(passed(&header), Ok(Item::Listener(_))));
        header[3] = FORMAT + 1;
        assert_eq!(passed(&header).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn more_unused_bytes_than_a_connection_can_have_are_refused() {
        let mut header = header_of(CONNECTION);
        let length = u32::try_from(LEFTOVER_MAX + 1).unwrap();
        header[8..12].copy_from_slice(&length.to_le_bytes());
        assert_eq!(passed(&header).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_head_has_a_deadline_only_if_it_has_begun() {
        let head_ends_in = |flags: u8| {
            let mut header = header_of(CONNECTION);
            header[1] = flags;
            header[28..32].copy_from_slice(&1500_u32.to_le_bytes());
            match passed(&header).unwrap() {
                Item::Connection(resumed) => resumed.head_ends_in,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(head_ends_in(0), None);
        assert_eq!(head_ends_in(HAS_BEGUN), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn each_flag_says_one_thing() {
        for flags in [0, EXPECTS_PROXY_HEADER, HAS_BEGUN, EXPECTS_PROXY_HEADER | HAS_BEGUN] {
            let mut header = header_of(CONNECTION);
            header[1] = flags;
            let Item::Connection(resumed) = passed(&header).unwrap() else {
                panic!("it is a connection");
            };
            let expects_proxy_header = resumed.accepted.entry.expects_proxy_header;
            assert_eq!(expects_proxy_header, flags & EXPECTS_PROXY_HEADER != 0, "{flags}");
            assert_eq!(resumed.head_ends_in.is_some(), flags & HAS_BEGUN != 0, "{flags}");
        }
    }

    /// Sends a connection with unused bytes, and returns what is received.
    fn resumed(connection: &mut Connection, unused: &[u8]) -> Resumed {
        let mut leftover = Content::default();
        leftover.extend(unused);
        connection.leftover = leftover;
        let (old, mut new) = UnixStream::pair().unwrap();
        send_connection(&old, connection).unwrap();
        match receive(&mut new).unwrap() {
            Item::Connection(resumed) => resumed,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a read of the received socket, which has nothing, returns at once. Also sends a byte
    /// to its peer.
    fn is_nonblocking(resumed: &mut Resumed) -> bool {
        let flags = rustix::fs::fcntl_getfl(resumed.accepted.transport.as_fd()).unwrap();
        assert_eq!(resumed.accepted.transport.write(b"!").unwrap(), 1);
        flags.contains(rustix::fs::OFlags::NONBLOCK)
    }

    #[test]
    fn a_connection_over_tcp_keeps_its_address_and_its_unused_bytes() {
        let engine = serving(Default::default(), |_: crate::Request| Response::new(204));
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else {
                skip::because("this system has no IPv6");
                continue;
            };
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, address) = listener.accept().unwrap();
            let transport = Transport::tcp(mio::net::TcpStream::from_std(socket));
            let mut connection = over(&engine, transport, Peer::Tcp(address));
            connection.transport.set_blocking(None).unwrap();
            let mut resumed = resumed(&mut connection, b"GET");
            assert_eq!(resumed.leftover, b"GET");
            assert!(matches!(resumed.accepted.peer, Peer::Tcp(peer) if peer == address), "{host}");
            assert!(is_nonblocking(&mut resumed));
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
        }
    }

    #[test]
    fn a_socket_is_taken_for_what_it_is_not_for_what_its_peer_is() {
        let engine = serving(Default::default(), |_: crate::Request| Response::new(204));
        let named = |address: &str| Peer::Tcp(address.parse().unwrap());
        for peer in [Peer::Unix, named("[2001:db8::1]:4711"), named("[::ffff:192.0.2.1]:80")] {
            let (mut connection, mut client) = accept(&engine);
            connection.peer = peer;
            connection.transport.set_blocking(None).unwrap();
            let mut resumed = resumed(&mut connection, b"");
            assert_eq!(format!("{:?}", resumed.accepted.peer), format!("{peer:?}"));
            assert!(format!("{:?}", resumed.accepted.transport).contains("Unix("));
            assert!(is_nonblocking(&mut resumed));
            client.read_exact(&mut [0]).unwrap();
        }
    }

    #[test]
    fn the_last_message_has_the_number_of_connections() {
        for (connections, received) in
            [(0, 0), (0x0102_0304, 0x0102_0304), (usize::MAX, 0xffff_ffff)]
        {
            let (old, mut new) = UnixStream::pair().unwrap();
            send_end(&old, connections).unwrap();
            let item = receive(&mut new).unwrap();
            assert!(
                matches!(item, Item::End { connections } if connections == received),
                "{item:?}"
            );
        }
    }
}
