//! Uploads to a disk that is really full: a small separate file system, and a limit on the length
//! of files.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use filoplume_tests::{Child, Example, eventually};

/// More bytes than fit.
const LONG: usize = 1_000_000;

/// Checks the upload example with a folder that has no room for [`LONG`].
fn check(child: &Child, folder: &Path) {
    let folder = child.process().path(folder);
    let kept = || fs::read_dir(&folder).unwrap().count();
    let put = |length: usize| {
        let head = format!("PUT /raw HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n");
        head + &"x".repeat(length)
    };
    let form = |length: usize| {
        let file = "x".repeat(length);
        let form = format!(
            "--b\r\nContent-Disposition: form-data; name=a; filename=a\r\n\r\n{file}\r\n--b--\r\n"
        );
        let head =
            "POST /upload HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=b\r\n";
        format!("{head}Content-Length: {}\r\n\r\n{form}", form.len())
    };
    let fails = |request: String| {
        let mut client = child.client();
        // The response may arrive before everything is sent, and then the rest is not read.
        let _ = client.try_send(request);
        let response = client.try_response().unwrap();
        assert_eq!(response.status, 500);
        if !response.closes() {
            assert_eq!(client.get("/").status, 200);
        }
    };
    assert_eq!(child.client().send(put(1000)).response().status, 201);
    assert_eq!(child.client().send(form(1000)).response().status, 201);
    // These two start the threads that uploads need, so that the number below does not grow.
    fails(put(LONG));
    fails(form(LONG));
    let process = child.process();
    eventually("the first ones have gone", || kept() == 2);
    let (threads, descriptors) = (process.threads(), process.descriptors());
    for _ in 0..20 {
        fails(put(LONG));
        fails(form(LONG));
    }
    assert_eq!(kept(), 2, "half of a file is left");
    eventually("descriptors are as before", || process.descriptors() <= descriptors);
    assert!(process.threads() <= threads + 2, "{} threads, before {threads}", process.threads());
    // There is room again.
    assert_eq!(child.client().send(put(1000)).response().status, 201);
    assert_eq!(child.client().send(form(1000)).response().status, 201);
    assert_eq!(kept(), 4);
}

#[test]
fn a_full_file_system_keeps_no_incomplete_files_and_leaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let shell = ["unshare", "--map-root-user", "--mount", "sh", "-c"];
    let mount = |at: &str| format!("mount -t tmpfs -o size=256k full {at}");
    let can_mount = Command::new(shell[0])
        .args(&shell[1..])
        .arg(mount(folder.to_str().unwrap()))
        .stderr(Stdio::null())
        .status();
    if !can_mount.is_ok_and(|status| status.success()) {
        skip::because("nothing can be mounted here, not even for a child alone");
        return;
    }
    let script = mount("\"$2\"") + " && exec \"$0\" \"$@\"";
    let child = Example("forms_and_uploads").start_by(&shell, &script, &[folder.to_str().unwrap()]);
    check(&child, folder);
}

#[test]
fn an_upload_over_the_file_size_limit_leaves_no_incomplete_file() {
    let folder = tempfile::tempdir().unwrap();
    // `SIGXFSZ` would end the process. If it is ignored, the write fails instead.
    let script = "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"";
    let folder = folder.path();
    let child =
        Example("forms_and_uploads").start_by(&["sh", "-c"], script, &[folder.to_str().unwrap()]);
    check(&child, folder);
}
