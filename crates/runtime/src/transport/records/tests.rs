//! Tests of records that no library would send, and of what a session holds.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ContentType};

use super::*;
use crate::transport::tests::client::{Sealer, begin, connect};

/// `KeyUpdate` that asks for one of the server.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 1];

fn sealed_by_client() -> (Records, Sealer) {
    let (records, client) = connect(&TLS13);
    (records, client.into_sealer())
}

/// Opens what was received, with room for so many bytes of it. Returns the content.
fn open(records: &mut Records, received: &[u8], length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let mut room = Room::new(&mut parts);
    records.open(&mut received.to_vec(), &mut room)?;
    let filled = room.filled;
    buffer.truncate(filled);
    Ok(buffer)
}

/// Reads what was opened before.
fn read(records: &mut Records, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let mut room = Room::new(&mut parts);
    records.read(&mut room);
    let filled = room.filled;
    buffer.truncate(filled);
    buffer
}

/// Seals this content, and returns how many records were necessary.
fn records_for(records: &mut Records, content: &[u8]) -> usize {
    let mut sealed = Vec::new();
    let parts = [IoSlice::new(content)];
    assert_eq!(records.seal(&parts, false, &mut Vec::new(), &mut sealed).unwrap(), content.len());
    let (mut rest, mut count) = (&sealed[..], 0);
    while let Some(length) = record_length(rest) {
        rest = &rest[length..];
        count += 1;
    }
    assert!(rest.is_empty());
    count
}

#[test]
fn content_is_read_in_order_whatever_the_room() {
    let (mut records, mut client) = connect(&TLS13);
    assert_eq!(open(&mut records, &client.seal(b"abcdef"), 2).unwrap(), b"ab");
    assert_eq!(open(&mut records, &client.seal(b"ghi"), 9).unwrap(), b"", "others wait");
    assert!(records.has_more() && records.held_bytes() >= 7);
    assert_eq!(read(&mut records, 3), b"cde");
    assert_eq!(read(&mut records, 9), b"fghi");
    assert_eq!((records.has_more(), records.held_bytes()), (false, 0));
    assert_eq!(open(&mut records, &client.seal(b"jklm"), 1).unwrap(), b"j");
    assert_eq!(read(&mut records, 9), b"klm");
}

#[test]
fn a_record_that_trickles_in_is_understood_and_leaves_no_memory() {
    let (mut records, mut client) = connect(&TLS13);
    let sealed = client.seal(&[7; 300]);
    let (last, first) = sealed.split_last().unwrap();
    for byte in first {
        assert_eq!(open(&mut records, &[*byte], 400).unwrap(), b"");
    }
    assert!(records.held_bytes() > 300);
    assert_eq!(open(&mut records, &[*last], 400).unwrap(), [7; 300]);
    assert_eq!(records.held_bytes(), 0);
    // The end of one record, and the next one, come together.
    let both = [client.seal(b"first"), client.seal(b"second")].concat();
    assert_eq!(open(&mut records, &both[..7], 99).unwrap(), b"");
    assert_eq!(open(&mut records, &both[7..], 99).unwrap(), b"firstsecond");
}

#[test]
fn a_message_in_several_records_is_understood_wherever_the_network_cuts_it() {
    for middle in 1..KEY_UPDATE.len() {
        let (mut records, mut client) = sealed_by_client();
        let mut sealed = client.seal(ContentType::Handshake, &KEY_UPDATE[..middle]);
        let first = sealed.len();
        sealed.extend(client.seal(ContentType::Handshake, &KEY_UPDATE[middle..]));
        let cut = first + middle;
        open(&mut records, &sealed[..cut], 0).unwrap();
        assert_eq!(records.held(), first, "the second record is incomplete");
        assert_eq!(records_for(&mut records, b"a response before the rest"), 1);
        open(&mut records, &sealed[cut..], 0).unwrap();
        assert_eq!((records.held(), records.held_bytes()), (0, 0));
        assert_eq!(records_for(&mut records, b"x"), 2, "the keys are updated first");
    }
}

#[test]
fn only_so_many_reads_in_a_row_may_have_no_content() {
    let (mut records, mut client) = sealed_by_client();
    // rustls itself refuses 33 empty records in a row, unless there is a warning between them.
    let sealed = |client: &mut Sealer, number| match number {
        32 => client.seal(ContentType::Alert, &[1, 90]),
        _ => client.seal(ContentType::ApplicationData, b""),
    };
    for number in 0..EMPTY_READS_MAX {
        open(&mut records, &sealed(&mut client, number), 9).unwrap();
    }
    let error = open(&mut records, &sealed(&mut client, EMPTY_READS_MAX), 9).unwrap_err();
    assert_eq!(error.to_string(), "the peer sends records without content");

    let (mut records, mut client) = sealed_by_client();
    for content in [&b""[..], b"x"].repeat(EMPTY_READS_MAX as usize + 1) {
        let sealed = client.seal(ContentType::ApplicationData, content);
        assert_eq!(open(&mut records, &sealed, 9).unwrap(), content);
    }
}

#[test]
fn an_incomplete_message_in_records_holds_only_so_much() {
    let (mut records, mut client) = sealed_by_client();
    // It claims to be the longest.
    let mut sealed = client.seal(ContentType::Handshake, &[1, 0, 0xff, 0xff]);
    for _ in 0..4 {
        sealed.extend(client.seal(ContentType::Handshake, &[7; 8000]));
    }
    assert!((HELD_BYTES_MAX - 1000..=HELD_BYTES_MAX).contains(&sealed.len()));
    open(&mut records, &sealed, 9).unwrap();
    assert_eq!(records.held(), sealed.len());
    let next = client.seal(ContentType::Handshake, &[7; 1000]);
    let error = open(&mut records, &next, 9).unwrap_err();
    assert_eq!(error.to_string(), "a handshake message comes in too many records");
}

#[test]
fn a_peer_that_provokes_replies_without_reading_them_is_not_served() {
    for (length, is_served) in [(REPLIES_MAX, true), (REPLIES_MAX + 1, false)] {
        let (mut records, mut client) = connect(&TLS13);
        records.keep(Vec::new(), &mut vec![7; length]);
        assert_eq!(open(&mut records, &client.seal(b"content"), 9).is_ok(), is_served, "{length}");
    }
}

#[test]
fn the_goodbye_follows_all_replies_and_is_said_once() {
    for is_in_write in [false, true] {
        let (mut records, mut client) = connect(&TLS13);
        // Earlier records of the session, which need not be TLS here.
        records.keep(Vec::new(), &mut b"reply".to_vec());
        let mut sealed = Vec::new();
        if is_in_write {
            records.seal(&[IoSlice::new(b"x")], true, &mut Vec::new(), &mut sealed).unwrap();
        } else {
            records.seal_goodbye(&mut sealed).unwrap();
        }
        let content = if is_in_write { b"x".to_vec() } else { Vec::new() };
        assert!(sealed.starts_with(b"reply"));
        assert_eq!(client.open(&sealed[5..]), (content, true));
        assert!(!records.has_replies());
        sealed.clear();
        records.keep(Vec::new(), &mut b"late".to_vec());
        records.seal_goodbye(&mut sealed).unwrap();
        assert_eq!(sealed, b"");
    }
}

#[test]
fn replies_are_sealed_without_content_too() {
    let (mut records, _) = connect(&TLS13);
    records.keep(Vec::new(), &mut b"reply".to_vec());
    let mut sealed = Vec::new();
    assert_eq!(records.seal(&[], true, &mut Vec::new(), &mut sealed).unwrap(), 0);
    assert_eq!((&sealed[..], records.has_replies()), (&b"reply"[..], false));
}

#[test]
fn a_write_has_only_so_many_records_and_short_parts_share_one() {
    for (lengths, taken, expected) in [
        (&[3, 5][..], 8, 1),
        (&[0, 0, 5], 5, 1),
        (&[RECORD_BYTES, 1], RECORD_BYTES + 1, 2),
        (&[3, RECORD_BYTES], RECORD_BYTES + 3, 2),
        (&[3, 5 * RECORD_BYTES], RECORDS_PER_WRITE * RECORD_BYTES, RECORDS_PER_WRITE),
        (&[5 * RECORD_BYTES], RECORDS_PER_WRITE * RECORD_BYTES, RECORDS_PER_WRITE),
    ] {
        let (mut records, mut client) = connect(&TLS13);
        let whole: Vec<u8> = (0..=250).cycle().take(lengths.iter().sum()).collect();
        let (mut rest, mut parts) = (&whole[..], Vec::new());
        for length in lengths {
            let (part, others) = rest.split_at(*length);
            parts.push(IoSlice::new(part));
            rest = others;
        }
        let mut sealed = Vec::new();
        let sealed_bytes = records.seal(&parts, true, &mut Vec::new(), &mut sealed).unwrap();
        assert_eq!(sealed_bytes, taken, "{lengths:?}");
        let is_complete = taken == whole.len();
        assert_eq!(client.open(&sealed), (whole[..taken].to_vec(), is_complete), "{lengths:?}");
        let count = headers(&sealed).count() - usize::from(is_complete);
        assert_eq!(count, expected, "{lengths:?}");
    }
}

/// Returns the lengths of these records.
fn headers(mut records: &[u8]) -> impl Iterator<Item = usize> + '_ {
    std::iter::from_fn(move || {
        let length = record_length(records)?;
        records = &records[length..];
        Some(length)
    })
}

#[test]
fn a_handshake_that_cannot_be_read_is_answered_with_an_alert() {
    for version in [&TLS12, &TLS13] {
        // The first one is answered by rustls, and the second one, which is too long, is not.
        for hello in [[1, 0, 0, 1, 0xff], [1, 0xff, 0xff, 0xff, 0]] {
            let (mut records, _) = begin(version);
            let mut output = Vec::new();
            let mut input = [&[0x16, 3, 1, 0, 5][..], &hello].concat();
            assert!(records.shake_hands(&mut input, &mut output).is_err());
            assert_eq!(output, DECODE_ERROR, "{hello:?}");
        }
    }
}

#[test]
fn a_forged_record_is_answered_with_an_alert_behind_the_other_replies() {
    let (mut records, mut client) = connect(&TLS13);
    records.keep(Vec::new(), &mut b"reply".to_vec());
    let forged = [&[0x17, 3, 3, 0, 20][..], &[0; 20]].concat();
    assert!(open(&mut records, &[client.seal(b"content"), forged].concat(), 99).is_err());
    let mut sealed = Vec::new();
    records.seal(&[], false, &mut Vec::new(), &mut sealed).unwrap();
    let expected = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(client.fail_to_open(sealed.strip_prefix(b"reply").unwrap()), expected);
}

#[test]
fn a_session_that_has_failed_sends_nothing_but_its_alert() {
    for (is_forged, is_at_once) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut records, mut client) = sealed_by_client();
        let mut received = client.seal(ContentType::Handshake, &KEY_UPDATE[..1]);
        if !is_at_once {
            open(&mut records, &received, 9).unwrap();
            assert_eq!(records.held(), received.len());
            received.clear();
        }
        // rustls has an alert for the forged one only.
        received.extend(client.seal(ContentType::ApplicationData, b"not the rest of the message"));
        *received.last_mut().unwrap() ^= u8::from(is_forged);
        assert!(open(&mut records, &received, 9).is_err());
        let mut sealed = Vec::new();
        let response = [IoSlice::new(b"response")];
        assert!(records.seal(&response, true, &mut Vec::new(), &mut sealed).is_err());
        assert_eq!((sealed.len(), records.has_replies()), (0, is_forged), "it is not lost");
        records.seal_goodbye(&mut sealed).unwrap();
        assert_eq!(headers(&sealed).count(), usize::from(is_forged), "there is no goodbye");
        let next = client.seal(ContentType::ApplicationData, b"next");
        assert!(open(&mut records, &next, 9).is_err());
        assert_eq!((records.has_replies(), records.held(), records.held_bytes()), (false, 0, 0));
    }
}

#[test]
fn the_end_of_the_client_is_noticed_with_what_precedes_it() {
    for version in [&TLS12, &TLS13] {
        let (mut records, mut client) = connect(version);
        let sealed = [client.seal(b"last"), client.seal_goodbye()].concat();
        assert!(!records.has_ended());
        assert_eq!(open(&mut records, &sealed, 9).unwrap(), b"last");
        assert!(records.has_ended() && records.has_more());
    }
}

#[test]
fn a_key_update_of_the_client_precedes_the_next_content() {
    let (mut records, mut client) = connect(&TLS13);
    let sealed = [client.seal_key_update(), client.seal(b"x")].concat();
    assert_eq!(open(&mut records, &sealed, 9).unwrap(), b"x");
    assert_eq!([records_for(&mut records, b"y"), records_for(&mut records, b"z")], [2, 1]);
}

#[test]
fn records_are_counted_by_their_headers() {
    let record = [0x17, 3, 3, 0, 2, 7, 7];
    for (bytes, expected) in [
        (&[][..], 0),
        (&record[..4], 0),
        (&record[..6], 0),
        (&record, 7),
        (&[&record[..], &record[..6]].concat(), 7),
        (&[record, record].concat(), 14),
    ] {
        assert_eq!(complete(bytes), expected, "{bytes:?}");
    }
    for (begun, received, expected) in [
        (&record[..1], &record[1..3], 2),
        (&record[..1], &record[1..], 6),
        (&record[..5], &[7, 7, 0x17], 2),
        (&record[..6], &[7, 0x17], 1),
        (&record, &[0x17, 3], 1),
    ] {
        assert_eq!(missing(begun, received), expected, "{begun:?} {received:?}");
    }
}
