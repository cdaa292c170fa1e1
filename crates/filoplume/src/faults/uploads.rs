//! Uploads to a full or failing disk. For every N, the Nth write fails. The client must get an
//! error, no partial file may remain, and the next request on the connection is answered or not,
//! but never mixed up with the upload.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

use super::client::{ask, wait_until_released};
use super::{Call, Fault, Plan};
use crate::{App, Error, Multipart, Result, RunningApp};

/// Upper limit for the writes of one upload.
const WRITES_MAX: u64 = 100;

/// Faults of a disk: full, over the quota, or broken; and a file system that writes nothing and
/// reports no error.
const FATAL: [Fault; 4] = [
    Fault::Error(Errno::NOSPC),
    Fault::Error(Errno::DQUOT),
    Fault::Error(Errno::IO),
    Fault::Nothing,
];

/// Returns uploads, each followed by another request on the same connection.
fn requests() -> Vec<String> {
    let behind = "GET /still-there HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let mut requests = Vec::new();
    // Uploads that are written at once, written in pieces, and longer than the unread content that
    // the server discards.
    for length in [1_000, 100_000, 600_000] {
        let form = format!(
            "--xyz\r\nContent-Disposition: form-data; name=a; filename=b\r\n\r\n{}\r\n--xyz--\r\n",
            "line\r\n".repeat(length / 6)
        );
        let head = "POST /upload HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; \
                    boundary=xyz\r\n";
        requests.push(format!("{head}Content-Length: {}\r\n\r\n{form}{behind}", form.len()));
        let chunk = format!("{:x}\r\n{form}\r\n0\r\n\r\n", form.len());
        requests.push(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{behind}"));
    }
    requests
}

fn site(folder: &Path) -> RunningApp {
    let path = folder.join("17.upload");
    let upload = move |mut form: Multipart| -> Result<String> {
        let Some(field) = form.next_field()? else { return Err(Error::bad_request("no file")) };
        Ok(format!("{} bytes are kept", field.save_to(&path)?))
    };
    App::new()
        .post("/upload", upload)
        .get("/still-there", || "still there")
        .start("127.0.0.1:0")
        .unwrap()
}

/// Returns the names and lengths of the files in the folder.
fn kept(folder: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect()
}

/// Sends each upload with a fault at the Nth call, for every N until there are no more calls.
fn check_each(call: Call, fault: Fault, is_invisible: bool) {
    let folder = tempfile::tempdir().unwrap();
    let app = site(folder.path());
    for request in requests() {
        let mut first = 1;
        loop {
            assert!(first < WRITES_MAX, "{request:.200} has no end");
            let what = format!("{request:.140}..., {call:?} number {first}: {fault:?}");
            let plan = Plan::new(call, first, 1, fault).activate(folder.path());
            let answer = ask(app.local_addr(), request.as_bytes());
            let failures = plan.failures();
            drop(plan);
            let kept = kept(folder.path());
            assert!(answer.is_whole, "{what}: {answer:.300?}");
            if failures == 0 || is_invisible {
                let length = kept.first().map_or(0, |(_, length)| *length);
                let message = String::from_utf8(answer.content).unwrap();
                assert_eq!((answer.status, kept.len()), (200, 1), "{what}");
                assert_eq!(message, format!("{length} bytes are kept"), "{what}");
                fs::remove_file(folder.path().join("17.upload")).unwrap();
            } else {
                assert_eq!(answer.status, 500, "{what}: {answer:.300?}");
                assert_eq!(kept, [], "{what}: half of a file is left");
            }
            // The next request is answered, or the connection ends with the response. Both are
            // consistent with the response's headers.
            let rest = String::from_utf8(answer.rest).unwrap();
            let is_closed = answer.head.to_lowercase().contains("connection: close");
            let is_answered =
                rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\nstill there");
            assert!(if is_closed { rest.is_empty() } else { is_answered }, "{what}: {rest:?}");
            wait_until_released(&app, folder.path(), &what);
            if failures == 0 {
                break;
            }
            first += 1;
        }
        assert!(first > 1, "{request:.200} makes no {call:?}");
    }
}

#[test]
fn an_interrupted_write_is_not_visible() {
    check_each(Call::Write, Fault::Error(Errno::INTR), true);
    check_each(Call::Write, Fault::OneByte, true);
}

#[test]
fn an_upload_that_cannot_be_written_is_a_500_and_leaves_no_file() {
    for fault in FATAL {
        check_each(Call::Write, fault, false);
    }
}

#[test]
fn a_file_that_cannot_be_created_is_a_500() {
    for error in [Errno::NOSPC, Errno::MFILE, Errno::ROFS, Errno::IO] {
        check_each(Call::Create, Fault::Error(error), false);
    }
}
