//! Bytes that a raw protocol sends back without a copy: they stay in order, and precede what it
//! sends after them.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::paces::{connect, receive_until};
use super::{Call, Fault, Plan};
use crate::tcp::{Io, Protocol};
use crate::{Server, ServerConfig};

/// Sends its input back without a copy, followed by bytes of its own.
struct Quoting;

impl Protocol for Quoting {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return 0 };
        io.send(&bytes[..end]);
        io.send(b" - so you said\n");
        end + 1
    }
}

#[test]
fn bytes_sent_back_precede_later_output_however_little_a_write_takes() {
    for faults in [
        (1, Fault::OneByte),
        (40, Fault::OneByte),
        (1, Fault::Error(rustix::io::Errno::AGAIN)),
        (3, Fault::Error(rustix::io::Errno::AGAIN)),
    ] {
        let (times, fault) = faults;
        for first in 1..=4 {
            let plan = Arc::new(Plan::new(Call::Write, first, times, fault));
            let mut config = ServerConfig::default().event_loops(1);
            config.faults = Some(Arc::clone(&plan));
            let server =
                Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
            server.spawn_tcp(|_| Quoting).unwrap();
            let mut client = connect(&server);
            for line in ["one", "number two"] {
                // Two lines at once, the second of which is incomplete.
                write!(client, "{line}\n{line}").unwrap();
                let expected = format!("{line} - so you said\n");
                assert_eq!(
                    receive_until(&mut client, b"\n"),
                    expected.as_bytes(),
                    "{faults:?} from {first}"
                );
                client.write_all(b"\n").unwrap();
                assert_eq!(
                    receive_until(&mut client, b"\n"),
                    expected.as_bytes(),
                    "{faults:?} from {first}"
                );
            }
            assert!(plan.struck() > 0, "{faults:?} from {first}");
            server.shutdown_handle().shutdown_within(Duration::ZERO);
            server.wait();
        }
    }
}

/// Sends all bytes back, and leaves the last one unused.
struct Peeking;

impl Protocol for Peeking {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.send(bytes);
        io.send(b"|");
        bytes.len() - 1
    }
}

#[test]
fn bytes_that_are_sent_back_and_not_consumed_stay_in_order() {
    let server = Server::builder().bind("127.0.0.1:0").unwrap().build().unwrap();
    server.spawn_tcp(|_| Peeking).unwrap();
    let mut client = connect(&server);
    for (sent, expected) in [("abc", "abc|"), ("de", "cde|"), ("f", "ef|")] {
        client.write_all(sent.as_bytes()).unwrap();
        assert_eq!(receive_until(&mut client, b"|"), expected.as_bytes());
    }
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}
