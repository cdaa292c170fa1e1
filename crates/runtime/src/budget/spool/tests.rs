//! Tests of the space for contents that wait in files.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::thread;

use super::*;
use crate::budget::clients::Clients;
use crate::budget::descriptors::Descriptors;
use crate::budget::throttle::tests::counting_lines;

fn space(bytes_max: u64) -> Arc<SpoolSpace> {
    SpoolSpace::new(None, Some(bytes_max), &Memory::new(Some(1000)))
}

fn create(
    space: &Arc<SpoolSpace>,
    length: Option<u64>,
    client: Option<&Arc<ClientConnection>>,
) -> Result<SpoolFile, SpoolError> {
    space.create(length, client, Descriptors::new(None).force())
}

#[test]
fn a_refused_client_is_told_when_its_content_would_fit() {
    let space = space(1000);
    let _held = create(&space, None, None).unwrap().append(&[0; 100]);
    assert_eq!(space.retry_after(Some(5000), None), 1, "nothing is known");
    // All that was freed was freed in the last seconds.
    drop(create(&space, None, None).map(|mut file| file.append(&[0; 100])));
    let started = Instant::now();
    while started.elapsed().as_millis() < 50 {
        thread::yield_now();
    }
    let (soon, later) =
        (space.retry_after(Some(1001), None), space.retry_after(Some(1 << 30), None));
    assert_eq!((soon, later), (1, 60));
}

#[test]
fn files_share_a_budget_and_give_it_back() {
    let space = space(10);
    let mut one = create(&space, None, None).unwrap();
    let mut other = create(&space, None, None).unwrap();
    one.append(b"123456").unwrap();
    let may_begin = |length| space.may_begin(length, None);
    assert!(may_begin(4) && !may_begin(5));
    other.append(b"1234").unwrap();
    assert!(matches!(one.append(b"7"), Err(SpoolError::Full)));
    assert_eq!(space.written(), 10);
    drop(one);
    assert_eq!(space.written(), 4);
    other.append(b"56").unwrap();
    other.rewind().unwrap();
    assert_eq!(io::read_to_string(&mut other).unwrap(), "123456");
    drop(other);
    assert_eq!((space.written(), *space.reserved.lock()), (0, 0));
}

#[test]
fn an_announced_length_is_reserved_before_it_is_written() {
    let space = space(10);
    let mut announced = create(&space, Some(7), None).unwrap();
    assert!(matches!(create(&space, Some(4), None), Err(SpoolError::Full)));
    let mut chunked = create(&space, None, None).unwrap();
    chunked.append(b"123").unwrap();
    assert!(matches!(chunked.append(b"4"), Err(SpoolError::Full)));
    announced.append(b"1234567").unwrap();
    assert_eq!(*space.reserved.lock(), 10);
    drop((announced, chunked));
    assert_eq!(*space.reserved.lock(), 0);
}

#[test]
fn contents_that_are_not_written_are_logged_once_per_second() {
    let space = space(10);
    let begun = Instant::now();
    counting_lines("folder", |lines| {
        (0..1000).for_each(|_| space.note_failure(&io::ErrorKind::StorageFull.into()));
        assert!((1..=1 + begun.elapsed().as_secs()).contains(&lines()), "{}", lines());
    });
}

#[test]
fn one_client_has_a_share_and_leaves_the_rest_to_others() {
    let clients = Arc::new(Clients::new(10));
    let client = |address: &str| clients.admit(address.parse().unwrap()).unwrap();
    let (one, same, other) = (client("192.0.2.1"), client("192.0.2.1"), client("192.0.2.2"));
    let space = space(40);
    let file = create(&space, Some(8), one.as_ref()).unwrap();
    assert!(!space.may_begin(3, same.as_ref()), "its connections count together");
    assert!(space.may_begin(10, other.as_ref()) && space.may_begin(30, None));
    let mut more = create(&space, None, same.as_ref()).unwrap();
    assert!(matches!(more.append(b"123"), Err(SpoolError::Full)));
    assert!(matches!(create(&space, Some(3), same.as_ref()), Err(SpoolError::Full)));
    drop((file, more));
    assert!(space.may_begin(10, one.as_ref()));
    assert_eq!(*space.reserved.lock(), 0);
}

#[test]
fn slow_uploads_are_pressed_from_half_of_the_space_on() {
    let memory = Memory::new(Some(1000));
    let space = SpoolSpace::new(None, Some(10), &memory);
    let one = create(&space, Some(4), None).unwrap();
    assert!(!memory.is_pressed());
    let other = create(&space, Some(1), None).unwrap();
    assert!(memory.is_pressed() && !memory.is_short());
    drop(one);
    assert!(!memory.is_pressed());
    drop(other);
}

#[test]
fn long_files_are_closed_elsewhere() {
    let space = space(LONG_BYTES * 2);
    let (closing, closed) = crossbeam_channel::unbounded();
    space.close_by(move |stored| closing.send(stored).unwrap());
    let mut short = create(&space, None, None).unwrap();
    short.append(b"short").unwrap();
    drop(short);
    assert!(closed.try_recv().is_err());
    let mut long = create(&space, None, None).unwrap();
    long.append(&vec![0; usize::try_from(LONG_BYTES).unwrap()]).unwrap();
    thread::spawn(move || drop(long)).join().unwrap();
    let stored = closed.try_recv().unwrap();
    assert_eq!(space.written(), LONG_BYTES, "its space is not free yet");
    drop(stored);
    assert_eq!((space.written(), *space.reserved.lock()), (0, 0));
}

#[test]
fn a_folder_that_does_not_exist_is_an_error() {
    let space = SpoolSpace::new(Some("/nowhere/at/all".into()), Some(10), &Memory::new(Some(1000)));
    assert!(matches!(create(&space, Some(5), None), Err(SpoolError::Failed(_))));
    assert_eq!(*space.reserved.lock(), 0);
}

fn client() -> Arc<ClientConnection> {
    let clients = Arc::new(Clients::new(100));
    clients.admit("192.0.2.1".parse().unwrap()).unwrap().unwrap()
}

#[test]
fn what_does_not_fit_into_the_space_does_not_count_for_its_client() {
    let (space, client) = (space(100), client());
    let _others = create(&space, Some(90), None).unwrap();
    assert!(matches!(create(&space, Some(20), Some(&client)), Err(SpoolError::Full)));
    assert_eq!(client.spooled(), 0);
}

#[test]
fn a_client_beyond_its_share_is_told_to_wait_although_there_is_space() {
    let (space, client) = (space(4 << 30), client());
    create(&space, None, None).unwrap().append(b"1").unwrap();
    assert_eq!(space.retry_after(Some(2 << 30), None), 1, "others have space for it");
    assert_eq!(space.retry_after(Some(2 << 30), Some(&client)), 60);
}

#[test]
fn a_refusal_names_the_length_beside_the_limits() {
    let (space, client) = (space(4000), client());
    let _others = create(&space, Some(90), None).unwrap();
    let limits = "has no space: contents that wait in files have 90 of the 4000 bytes of \
                  `ServerConfig::spooled_bytes_max`, and those of this client 0 of its 1000; if \
                  the disk is full or has failed, the log has the error";
    for (length, name) in [(Some(1001), "1001 bytes"), (None, "unknown length")] {
        let usage = space.usage(length, Some(&client)).to_string();
        assert_eq!(usage, format!("a content of {name} {limits}"));
    }
}

#[test]
fn a_space_of_nothing_is_not_short_while_nothing_is_reserved() {
    for bytes_max in [0, 1] {
        let space = space(bytes_max);
        drop(create(&space, None, None).unwrap());
        assert!(!space.memory.is_disk_short(), "{bytes_max}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn files_in_memory_need_no_warning_if_the_program_has_chosen_a_smaller_space() {
    let folder = std::path::Path::new("/dev/shm");
    // A container in which the tests run may have no such mount, or a full one.
    let memory = Memory::new(Some(1 << 20));
    if Disk::of(folder).is_memory && Disk::of(folder).spooled_bytes_max(1 << 20) == 1 << 19 {
        let is_memory =
            |bytes_max| SpoolSpace::new(Some(folder.to_owned()), bytes_max, &memory).is_memory;
        assert!(is_memory(None) && is_memory(Some(1 << 19)));
        assert!(!is_memory(Some((1 << 19) - 1)));
    }
}
