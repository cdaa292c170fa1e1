//! The addresses of sockets. Asking a socket itself would need a copy of its descriptor. If the
//! number was reused for a file meanwhile, closing the copy would end the locks of this process on
//! that file, which would corrupt a database.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Take};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How much of a table is read. A line has 150 bytes, so that is some 50,000 sockets.
const TABLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The tables of sockets, in the order in which they are read, and the column of the inode in each.
const TABLES: [(&str, usize); 5] = [("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("unix", 6)];

/// The other sides of sockets. The tables are read once, and only as far as necessary, because they
/// have a line for each socket of the machine.
#[derive(Debug, Default)]
pub(super) struct Sockets(RefCell<Reading>);

#[derive(Debug, Default)]
struct Reading {
    /// How many tables were begun.
    begun: usize,
    lines: Option<BufReader<Take<File>>>,
    line: String,
    /// The other sides by inode.
    known: HashMap<u64, Side>,
}

/// The other side of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Side {
    /// `None` if the socket is not connected.
    Remote(Option<SocketAddr>),
    /// A process on this machine, and the path of the socket if it has one.
    Local(Option<String>),
}

impl Sockets {
    /// Returns the address of the other side of a socket.
    pub(super) fn peer(&self, inode: &str) -> Option<String> {
        let inode = inode.parse().ok()?;
        match self.0.borrow_mut().side_of(inode)? {
            Side::Remote(address) => Some(address?.to_string()),
            Side::Local(Some(path)) => Some(format!("a process on this machine, by {path}")),
            Side::Local(None) => Some("a process on this machine".to_owned()),
        }
    }
}

impl Reading {
    fn side_of(&mut self, inode: u64) -> Option<Side> {
        while !self.known.contains_key(&inode) {
            self.read_line()?;
        }
        self.known.get(&inode).cloned()
    }

    /// Reads one more line. Returns `None` after the last one of the last table.
    fn read_line(&mut self) -> Option<()> {
        self.line.clear();
        let read = self.lines.as_mut().map(|lines| lines.read_line(&mut self.line));
        if !matches!(read, Some(Ok(1..))) {
            let (table, _) = TABLES.get(self.begun)?;
            self.begun += 1;
            let file = File::open(format!("/proc/self/net/{table}")).ok();
            self.lines =
                file.map(|file| BufReader::with_capacity(64 * 1024, file.take(TABLE_BYTES_MAX)));
            return Some(());
        }
        let (table, column) = TABLES.get(self.begun.checked_sub(1)?)?;
        if let Some((inode, side)) = parse(table, *column, &self.line) {
            self.known.insert(inode, side);
        }
        Some(())
    }
}

/// Reads a line of a table: the inode of a socket, and its other side.
fn parse(table: &str, column: usize, line: &str) -> Option<(u64, Side)> {
    let inode = line.split_ascii_whitespace().nth(column)?.parse().ok()?;
    // Sockets that their processes have closed have no inode.
    if inode == 0 {
        return None;
    }
    if table == "unix" {
        return Some((inode, Side::Local(line.split_ascii_whitespace().nth(7).map(str::to_owned))));
    }
    Some((inode, Side::Remote(remote(line))))
}

/// Reads the remote address of a line: `0100007F:1F90`, in words of the machine's byte order.
fn remote(line: &str) -> Option<SocketAddr> {
    let (address, port) = line.split_ascii_whitespace().nth(2)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for start in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address = match <[u8; 4]>::try_from(&*bytes) {
        Ok(bytes) => IpAddr::from(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
    };
    (!address.is_unspecified()).then(|| SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn the_other_sides_of_sockets_are_found_in_any_order() {
        use std::net::{TcpListener, TcpStream};
        use std::os::fd::AsRawFd;
        use std::os::unix::net::UnixStream;

        let inode = |descriptor: i32| {
            let target = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
            let target = target.to_string_lossy().into_owned();
            target.trim_start_matches("socket:[").trim_end_matches(']').to_owned()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = TcpStream::connect(&address).unwrap();
        let (local, _other) = UnixStream::pair().unwrap();
        let inodes = [client.as_raw_fd(), local.as_raw_fd(), listener.as_raw_fd()].map(inode);
        let expected = [Some(address), Some("a process on this machine".to_owned()), None];
        for order in [[0, 1, 2], [2, 1, 0], [1, 1, 0]] {
            let sockets = Sockets::default();
            for index in order {
                assert_eq!(sockets.peer(&inodes[index]), expected[index]);
            }
            assert_eq!(sockets.peer("1"), None);
            assert_eq!(sockets.peer("socket"), None);
        }
    }

    #[test]
    fn closed_sockets_and_headings_are_skipped() {
        let line = "  0: 0100007F:1538 0200007F:1F90 06 0:0 00:0 0 1 0 0 1";
        assert_eq!(parse("tcp", 9, line), None);
        assert_eq!(
            parse("tcp", 9, "  sl  local_address rem_address st tx rx tr tm u t inode"),
            None
        );
        assert_eq!(parse("unix", 6, "0: 2 0 0 1 03 77\n"), Some((77, Side::Local(None))));
        let path = Some("/run/a".to_owned());
        assert_eq!(parse("unix", 6, "0: 2 0 0 1 03 77 /run/a\n"), Some((77, Side::Local(path))));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_remote_address_of_a_line_is_read() {
        let line = |remote: &str| format!("  0: 0100007F:1538 {remote} 01 0:0 00:0 0 1 0 77 1");
        for (text, expected) in [
            ("0200007F:1F90", Some("127.0.0.2:8080")),
            ("00000000:0000", None),
            ("0000000000000000FFFF00000100007F:0050", Some("127.0.0.1:80")),
            ("00000000000000000000000001000000:0050", Some("[::1]:80")),
            ("B80D0120000000000000000001000000:01BB", Some("[2001:db8::1]:443")),
            ("0200007F", None),
            ("0200007:1F90", None),
            ("0200007F:1F900", None),
            ("zz00007F:1F90", None),
            ("", None),
        ] {
            let found = remote(&line(text)).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }
}
