//! The PROXY protocol: a header that a proxy sends before the client's first byte. It has the
//! client's address.
//!
//! Parses both versions of <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, the line
//! of text and the binary block. If a header is expected, anything else ends the connection: a peer
//! that may omit the header may also claim any address.
//!
//! A crate would save a hundred lines. The crates that were considered accept more than the
//! specification allows (ports with a sign or leading zeros, any byte after `PROXY`), or cannot
//! tell an incomplete line from a malformed one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest header accepted, in either version. The specification requires that a header fits into
/// the smallest segment that every host takes (576 bytes less 40 for IP and TCP), so that it
/// arrives in one piece. This leaves some hundred bytes for TLVs.
const HEADER_BYTES_MAX: usize = 536;

/// Longest line of version 1, including its line end: two full IPv6 addresses, or as many bytes
/// after `UNKNOWN`.
const LINE_BYTES_MAX: usize = 107;

/// The start of version 1.
const WORD: &[u8] = b"PROXY ";

/// The start of version 2. No protocol in which the client speaks first begins like this.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The signature, and four bytes that describe the rest.
const BLOCK_START_BYTES: usize = 16;

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// The client's address. `None` if the proxy connects on its own behalf, such as for a health
    /// check, or does not know the address. The socket's address is kept then.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) len: usize,
}

/// Why the start of a connection is not a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyError {
    /// The connection begins with something else.
    Missing,
    TooLong,
    /// The line of version 1 is not `PROXY family source destination port port`.
    Line,
    /// The version, command or family is not defined.
    Block,
    /// The block is too short for the addresses of its family.
    BlockTooShort,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "no PROXY header at the start of the connection",
            Self::TooLong => "PROXY header is too long",
            Self::Line => "PROXY line is malformed",
            Self::Block => "PROXY block has a version, command or family that is not defined",
            Self::BlockTooShort => "PROXY block is too short for its addresses",
        })
    }
}

/// Returns the header at the start of `input`, or `None` if more bytes are needed. The result does
/// not depend on how the bytes were split into reads.
pub(crate) fn parse_proxy_header(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    if may_begin_with(input, SIGNATURE) {
        parse_block(input)
    } else if may_begin_with(input, WORD) {
        parse_line(input)
    } else {
        Err(ProxyError::Missing)
    }
}

fn may_begin_with(input: &[u8], start: &[u8]) -> bool {
    input.iter().zip(start).all(|(byte, expected)| byte == expected)
}

/// Parses version 1.
fn parse_line(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    let window = input.get(..LINE_BYTES_MAX).unwrap_or(input);
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() < LINE_BYTES_MAX { Ok(None) } else { Err(ProxyError::TooLong) };
    };
    let words = window.get(WORD.len()..end).and_then(|words| std::str::from_utf8(words).ok());
    let source = source_of_line(words.unwrap_or_default()).ok_or(ProxyError::Line)?;
    Ok(Some(ProxyHeader { source, len: end + 2 }))
}

/// Returns `None` if the line is malformed.
fn source_of_line(words: &str) -> Option<Option<SocketAddr>> {
    let mut words = words.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        // The rest of the line must be ignored.
        return Some(None);
    }
    let (source, destination) = (words.next()?, words.next()?);
    let (source_port, destination_port) = (parse_port(words.next()?)?, parse_port(words.next()?)?);
    let source = match family {
        "TCP4" => IpAddr::V4(parse_pair::<Ipv4Addr>(source, destination)?),
        "TCP6" => IpAddr::V6(parse_pair::<Ipv6Addr>(source, destination)?),
        _ => return None,
    };
    // The destination is not used, but it must be valid.
    let _ = destination_port;
    words.next().is_none().then(|| Some(SocketAddr::new(source, source_port)))
}

/// Returns the first of two addresses, if both are valid.
fn parse_pair<A: FromStr>(source: &str, destination: &str) -> Option<A> {
    let source = source.parse().ok()?;
    destination.parse::<A>().ok().map(|_| source)
}

/// Parses a decimal number. Refuses a sign and leading zeros, which `parse` alone would accept.
fn parse_port(text: &str) -> Option<u16> {
    let is_plain =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    if is_plain { text.parse().ok() } else { None }
}

/// Parses version 2.
fn parse_block(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    let Some((start, rest)) = input.split_first_chunk::<BLOCK_START_BYTES>() else {
        return Ok(None);
    };
    let [.., version_and_command, family, length_high, length_low] = *start;
    let block_len = usize::from(u16::from_be_bytes([length_high, length_low]));
    let len = BLOCK_START_BYTES + block_len;
    if len > HEADER_BYTES_MAX {
        return Err(ProxyError::TooLong);
    }
    let speaks_for_itself = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyError::Block),
    };
    let addresses_len = match family {
        // The addresses of LOCAL must be ignored.
        _ if speaks_for_itself => 0,
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        _ => return Err(ProxyError::Block),
    };
    if block_len < addresses_len {
        return Err(ProxyError::BlockTooShort);
    }
    let Some(block) = rest.get(..block_len) else {
        return Ok(None);
    };
    // The addresses of datagram and Unix sockets are defined, but are not used: they count as
    // unknown.
    let source = match (speaks_for_itself, family, block) {
        (false, 0x11, &[a, b, c, d, _, _, _, _, high, low, ..]) => {
            Some(SocketAddr::new(IpAddr::from([a, b, c, d]), u16::from_be_bytes([high, low])))
        }
        (false, 0x21, _) => source_of_ipv6(block),
        _ => None,
    };
    // The addresses are followed by type-length-value triples, none of which is used.
    Ok(Some(ProxyHeader { source, len }))
}

/// Source and destination have 16 bytes each, followed by the ports.
fn source_of_ipv6(block: &[u8]) -> Option<SocketAddr> {
    let address = *block.first_chunk::<16>()?;
    let port = *block.get(32..)?.first_chunk()?;
    Some(SocketAddr::new(IpAddr::from(address), u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block with this start, length and rest after the signature.
    fn block(start: [u8; 2], length: u16, rest: &[u8]) -> Vec<u8> {
        [SIGNATURE, &start, &length.to_be_bytes(), rest].concat()
    }

    const IPV4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];

    /// Asserts that the header has this source and consumes all its bytes, wherever they are cut,
    /// and that bytes after it are not consumed.
    #[track_caller]
    fn names(header: &[u8], source: Option<&str>) {
        let expected =
            ProxyHeader { source: source.map(|source| source.parse().unwrap()), len: header.len() };
        for cut in 0..header.len() {
            assert_eq!(parse_proxy_header(&header[..cut]), Ok(None), "cut at {cut}");
        }
        for behind in [&b""[..], b"G", b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n", &[b'x'; 600]] {
            assert_eq!(parse_proxy_header(&[header, behind].concat()), Ok(Some(expected)));
        }
    }

    /// Asserts that the bytes are refused, and that each prefix needs more bytes or is refused with
    /// the same error.
    #[track_caller]
    fn is_refused(bytes: &[u8], error: ProxyError) {
        assert_eq!(parse_proxy_header(bytes), Err(error));
        for cut in 0..bytes.len() {
            let result = parse_proxy_header(&bytes[..cut]);
            assert!(matches!(result, Ok(None) | Err(_)), "cut at {cut}: {result:?}");
            assert!(result.is_ok() || result == Err(error), "cut at {cut}: {result:?}");
        }
    }

    #[test]
    fn a_line_names_its_source() {
        names(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", Some("192.0.2.1:56324"));
        names(
            b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            Some("255.255.255.255:65535"),
        );
        names(b"PROXY TCP6 2001:db8::1 ::1 0 1\r\n", Some("[2001:db8::1]:0"));
        let full = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let longest = format!("PROXY TCP6 {full} {full} 65535 65535\r\n");
        assert!(longest.len() <= LINE_BYTES_MAX);
        names(longest.as_bytes(), Some(&format!("[{full}]:65535")));
    }

    #[test]
    fn an_unknown_line_names_no_source() {
        names(b"PROXY UNKNOWN\r\n", None);
        names(b"PROXY UNKNOWN ffff::1 whatever 1 2 3\r\n", None);
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_BYTES_MAX - 16));
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        names(longest.as_bytes(), None);
    }

    #[test]
    fn a_line_that_is_malformed_is_refused() {
        for line in [
            "PROXY \r\n",
            "PROXY  TCP4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY tcp4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.1  198.51.100.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1\t198.51.100.2 1 2\r\n",
            "PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
            "PROXY TCP4 192.0.2.256 198.51.100.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY TCP6 ::1%eth0 ::1 1 2\r\n",
            "PROXY TCP6 [::1] ::1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 00\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 -2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\r\n",
            "PROXY UNKNOWN\r\r\n",
        ] {
            is_refused(line.as_bytes(), ProxyError::Line);
        }
        is_refused(b"PROXY TCP4 \xff\xfe\r\n", ProxyError::Line);
        is_refused(&[b"PROXY UNKNOWN ", &[b'x'; LINE_BYTES_MAX][..]].concat(), ProxyError::TooLong);
    }

    #[test]
    fn a_block_names_its_source() {
        names(&block([0x21, 0x11], 12, &IPV4), Some("192.0.2.1:56324"));
        let mut ipv6 = [0; 36];
        ipv6[..2].copy_from_slice(&[0x20, 0x01]);
        ipv6[15] = 9;
        ipv6[32..34].copy_from_slice(&[0x1f, 0x90]);
        names(&block([0x21, 0x21], 36, &ipv6), Some("[2001::9]:8080"));
    }

    #[test]
    fn what_follows_the_addresses_is_skipped_up_to_the_longest_header() {
        let longest = HEADER_BYTES_MAX - BLOCK_START_BYTES;
        for len in [13, 15, 100, longest] {
            let mut rest = IPV4.to_vec();
            rest.resize(len, 0x03);
            names(
                &block([0x21, 0x11], u16::try_from(len).unwrap(), &rest),
                Some("192.0.2.1:56324"),
            );
        }
        for len in [longest + 1, usize::from(u16::MAX)] {
            is_refused(
                &block([0x21, 0x11], u16::try_from(len).unwrap(), &IPV4),
                ProxyError::TooLong,
            );
        }
    }

    #[test]
    fn a_block_for_the_proxy_itself_or_of_another_family_names_no_source() {
        names(&block([0x20, 0x00], 0, &[]), None);
        names(&block([0x20, 0x11], 12, &IPV4), None);
        names(&block([0x20, 0x11], 3, &[1, 2, 3]), None);
        names(&block([0x20, 0xff], 1, &[1]), None);
        names(&block([0x21, 0x00], 0, &[]), None);
        names(&block([0x21, 0x00], 5, &[9; 5]), None);
        names(&block([0x21, 0x12], 12, &IPV4), None);
        names(&block([0x21, 0x22], 36, &[9; 36]), None);
        names(&block([0x21, 0x31], 216, &[b'/'; 216]), None);
    }

    #[test]
    fn a_block_that_is_malformed_is_refused() {
        for start in [
            [0x11, 0x11],
            [0x31, 0x11],
            [0x22, 0x11],
            [0x2f, 0x11],
            [0x21, 0x13],
            [0x21, 0x41],
            [0x21, 0x01],
        ] {
            is_refused(&block(start, 12, &IPV4), ProxyError::Block);
        }
        for (family, len) in [(0x11, 11), (0x12, 0), (0x21, 35), (0x22, 12), (0x31, 215)] {
            is_refused(&block([0x21, family], len, &[0; 216]), ProxyError::BlockTooShort);
        }
    }

    #[test]
    fn bytes_that_are_no_header_are_refused_at_the_first_wrong_byte() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"P",
            b"\r\n\r",
            b"\0",
            b"proxy TCP4",
            b"PROXY\tTCP4",
            b"\r\n\r\n\0\r\nQUIT\r",
        ] {
            let wrong = bytes.len().min(match bytes[0] {
                b'P' => {
                    bytes.iter().zip(WORD).take_while(|(byte, expected)| byte == expected).count()
                }
                b'\r' => bytes
                    .iter()
                    .zip(SIGNATURE)
                    .take_while(|(byte, expected)| byte == expected)
                    .count(),
                _ => 0,
            });
            for cut in 0..=bytes.len() {
                let expected = if cut <= wrong { Ok(None) } else { Err(ProxyError::Missing) };
                assert_eq!(
                    parse_proxy_header(&bytes[..cut]),
                    expected,
                    "{} at {cut}",
                    bytes.escape_ascii()
                );
            }
        }
    }
}
