//! The addresses of sockets. Asking the socket itself would need a copy of its descriptor, and
//! closing a copy of a file's descriptor ends the locks of this process on that file: if the number
//! was reused meanwhile, that would corrupt a database.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How much of a table is read. A line has 150 bytes, so that is some 50,000 sockets.
const TABLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Returns the address of the other side of a socket.
pub(super) fn peer(inode: &str) -> Option<String> {
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        if let Some(line) = line_of(table, 9, inode) {
            return Some(remote(&line)?.to_string());
        }
    }
    let line = line_of("unix", 6, inode)?;
    Some(match line.split_ascii_whitespace().nth(7) {
        Some(path) => format!("a process on this machine, by {path}"),
        None => "a process on this machine".to_owned(),
    })
}

/// Returns the line of a socket. `column` is that of the inode.
fn line_of(table: &str, column: usize, inode: &str) -> Option<String> {
    let file = File::open(format!("/proc/self/net/{table}")).ok()?;
    let mut reader = BufReader::with_capacity(64 * 1024, file.take(TABLE_BYTES_MAX));
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 0 {
        if line.split_ascii_whitespace().nth(column) == Some(inode) {
            return Some(line);
        }
        line.clear();
    }
    None
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
    use super::*;

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
