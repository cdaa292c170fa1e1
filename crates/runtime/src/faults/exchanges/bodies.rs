//! The reader of a body fails: the client can tell that the body is incomplete.

use std::io::{self, Read, Write};
use std::sync::Arc;

use super::{Call, Fault, Over, PLAIN, Plan};

#[test]
fn an_incomplete_body_that_is_delimited_by_the_end_of_the_connection_ends_in_a_reset() {
    let plan = Arc::new(Plan::new(Call::Accept, u64::MAX, 0, Fault::OneByte));
    for reads in 0..5 {
        for version in ["1.0", "1.1"] {
            let running = PLAIN.server(&plan, Over::Tcp);
            let mut socket = running.connect();
            let _other = socket.other_handle();
            write!(
                socket,
                "GET /breaks/{reads} HTTP/{version}\r\nHost: t\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
            let mut received = Vec::new();
            let ended = socket.read_to_end(&mut received);
            let is_reset = ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
            // In a chunked body the missing last chunk is visible.
            assert_eq!(is_reset, version == "1.0", "{reads} reads, {version}: {received:?}");
            assert!(is_reset || !received.ends_with(b"0\r\n\r\n"));
            running.end();
        }
    }
}
