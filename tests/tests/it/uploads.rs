//! Uploads and downloads of any size: what is kept, under which name, and in how much memory.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, File};
use std::path::Path;

use filoplume_tests::{Browser, Child, Client, Example, eventually};

const MIB: usize = 1024 * 1024;

/// More than any bounded buffer would hold.
const LARGE_BYTES: usize = 200 * MIB;

/// Buffers of threads and of the allocator, with room for the noise of a busy machine.
const MEMORY_BYTES_MAX: u64 = 24 * MIB as u64;

fn start(folder: &Path) -> Child {
    Example("upload").start_with(&[folder.to_str().unwrap()])
}

/// Returns the names of all files in the folder, hidden ones included.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn put(client: &mut Client, name: &str, content: &str) -> (u16, String) {
    let head = format!(
        "PUT /files/{name} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    let response = client.send(head + content).response();
    (response.status, response.text().to_owned())
}

/// Sends a head, then zeros and an end, and asserts that the process stays small meanwhile.
fn send_large(child: &Child, head: &str, end: &str) -> String {
    let mut client = child.client();
    client.get("/");
    let before = child.process().resident_bytes();
    client.send(head);
    let mut most = before;
    for piece in 0..LARGE_BYTES / MIB {
        client.send(vec![0; MIB]);
        if piece % 10 == 0 {
            most = most.max(child.process().resident_bytes());
        }
    }
    let response = client.send(end).response();
    most = most.max(child.process().resident_bytes());
    assert!(most - before < MEMORY_BYTES_MAX, "from {before} to {most} bytes");
    assert_eq!(response.status, 201, "{}", response.text());
    response.text().to_owned()
}

#[test]
fn a_large_upload_needs_constant_memory() {
    let folder = tempfile::tempdir().unwrap();
    let child = start(folder.path());
    let content = format!("Content-Length: {LARGE_BYTES}\r\n\r\n");
    let stored =
        send_large(&child, &format!("PUT /files/a.bin HTTP/1.1\r\nHost: t\r\n{content}"), "");
    assert_eq!(stored, format!(r#"{{"name":"1-a.bin","bytes":{LARGE_BYTES}}}"#));
    fs::remove_file(folder.path().join("1-a.bin")).unwrap();

    let part = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.bin\"\r\n\r\n";
    let end = "\r\n--x--\r\n";
    let length = part.len() + LARGE_BYTES + end.len();
    let head = format!(
        "POST /files HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=x\r\n\
         Content-Length: {length}\r\n\r\n{part}"
    );
    let stored = send_large(&child, &head, end);
    assert_eq!(stored, format!(r#"[{{"name":"2-b.bin","bytes":{LARGE_BYTES}}}]"#));
    assert_eq!(names(folder.path()), ["2-b.bin"]);
}

#[test]
fn a_large_download_needs_constant_memory() {
    let folder = tempfile::tempdir().unwrap();
    // A file with a hole: it needs no room on the disk.
    let file = File::create(folder.path().join("1-large.bin")).unwrap();
    file.set_len(LARGE_BYTES as u64).unwrap();
    let child = start(folder.path());
    let mut client = child.client();
    client.get("/");
    let before = child.process().resident_bytes();
    let ranges = [
        ("", 200, LARGE_BYTES),
        ("Range: bytes=1-\r\n", 206, LARGE_BYTES - 1),
        ("Range: bytes=-5000000\r\n", 206, 5_000_000),
    ];
    for (range, status, length) in ranges {
        client.send(format!("GET /files/1-large.bin HTTP/1.1\r\nHost: t\r\n{range}\r\n"));
        let head = client.read_head_only().unwrap();
        assert_eq!(head.status, status);
        assert_eq!(head.header("content-length"), Some(length.to_string().as_str()));
        let mut left = length;
        // Slices are compared at once. Byte by byte would take seconds without optimisation.
        let zeros = vec![0; MIB];
        while left > 0 {
            let piece = client.read_exactly(left.min(MIB));
            assert!(piece[..] == zeros[..piece.len()]);
            left -= piece.len();
        }
        let now = child.process().resident_bytes();
        assert!(now < before + MEMORY_BYTES_MAX, "from {before} to {now} bytes");
    }
    // Clients that do not read hold no memory of the server.
    let silent: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = child.client();
            client.send("GET /files/1-large.bin HTTP/1.1\r\nHost: t\r\n\r\n");
            client.read_head_only().unwrap();
            client
        })
        .collect();
    let now = child.process().resident_bytes();
    assert!(now < before + MEMORY_BYTES_MAX, "from {before} to {now} bytes");
    drop(silent);
}

#[test]
fn uploads_have_safe_names_and_replace_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("7-before.txt"), "before").unwrap();
    let child = start(folder.path());
    let mut client = child.client();
    let long = "x".repeat(300);
    for (number, (name, stored)) in [
        ("cat.png", "cat.png"),
        ("cat.png", "cat.png"),
        (".htaccess", ".htaccess"),
        ("..%2F..%2Fetc%2Fpasswd", ".._.._etc_passwd"),
        ("%C3%A4%20%3Cb%3E%0A.html", "___b__.html"),
        (&format!("{long}.txt"), &format!("{}.txt", "x".repeat(96))),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, text) = put(&mut client, name, "hi");
        assert_eq!(status, 201, "{name}: {text}");
        let number = number + 8;
        assert_eq!(text, format!(r#"{{"name":"{number}-{stored}","bytes":2}}"#));
    }
    let listed = client.get("/files").text().to_owned();
    for name in names(folder.path()) {
        assert!(listed.contains(&format!("\"{name}\"")), "{name} is not in {listed}");
    }
    assert_eq!(client.get("/files/7-before.txt").text(), "before");
    let download = client.get("/files/8-cat.png");
    assert_eq!(download.text(), "hi");
    assert_eq!(download.header("content-disposition"), Some("attachment; filename=\"8-cat.png\""));
    for outside in ["..%2Fsecret", "%2e%2e", ".8-partial", "8-missing"] {
        assert_eq!(client.get(&format!("/files/{outside}")).status, 404, "{outside}");
    }
}

#[test]
fn of_an_upload_that_is_broken_off_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let child = start(folder.path());
    let part = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.bin\"\r\n\r\n";
    let content = "Content-Length: 90000000\r\n";
    let form = "Content-Type: multipart/form-data; boundary=x\r\n";
    for head in [
        format!("PUT /files/a.bin HTTP/1.1\r\nHost: t\r\n{content}\r\n"),
        format!("POST /files HTTP/1.1\r\nHost: t\r\n{content}{form}\r\n{part}"),
    ] {
        let mut client = child.client();
        client.send(head).send(vec![0; 2 * MIB]);
        eventually("the upload has begun", || names(folder.path()).len() == 1);
        assert!(names(folder.path())[0].ends_with(".partial"));
        assert_eq!(child.client().get("/files").text(), "[]");
        drop(client);
        eventually("the incomplete file is removed", || names(folder.path()).is_empty());
    }
}

#[test]
fn upload_works_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut browser) = Browser::start(&folder.path().join("browser")) else { return };
    let child = start(&folder.path().join("uploads"));
    browser.open(&format!("http://{}/", child.address()));
    browser.wait_for_text("Choose files of any size.");
    // A script cannot choose a file of the disk, but it can make one.
    browser.evaluate(
        "(() => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(3 * 1024 * 1024)], '<b>large<b>.bin'));
            files.items.add(new File(['hello'], 'hello.txt'));
            document.querySelector('input[type=file]').files = files.files;
        })()",
    );
    browser.click("button");
    browser.wait_for_text("Stored 1-");
    browser.wait_for_text("hello.txt, 0.0 MiB");
    browser.wait_for_text("1-_b_large_b_.bin, 3.0 MiB");
    browser.wait_for("document.getElementById('progress').value === 1");
    browser.evaluate(
        "fetch('/files/2-hello.txt', {headers: {range: 'bytes=1-3'}})
            .then(answer => answer.text()).then(text => { window.part = text; }), 0",
    );
    browser.wait_for("window.part === 'ell'");
}
