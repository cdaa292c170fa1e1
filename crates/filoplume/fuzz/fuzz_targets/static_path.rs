//! Whatever the path is, an answer with content is the file that the path names. The file is inside
//! the folder and not hidden.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use filoplume::prelude::*;
use filoplume::testing::TestClient;
use filoplume_fuzz::{Answer, ask, is_target};
use libfuzzer_sys::fuzz_target;
use percent_encoding::percent_decode_str;

struct Fixture {
    client: TestClient,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

/// The files below the root. Each contains its own path.
const FILES: [&str; 8] = [
    "index.html",
    "a.txt",
    "b c.txt",
    "100%.txt",
    "%2e%2e",
    "d/index.html",
    "d/e/f.css",
    "\u{e4}/\u{f6}.txt",
];
const HIDDEN: [&str; 4] = [".env", ".git/config", "d/.htpasswd", "..."];

fn write(root: &Path, name: &str, content: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("it is below the root"))
        .expect("the folder can be made");
    fs::write(path, content).expect("the file can be written");
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let root = folder.path().join("root");
    for name in FILES {
        write(&root, name, &format!("inside:{name}"));
    }
    for name in HIDDEN {
        write(&root, name, &format!("hidden:{name}"));
    }
    write(folder.path(), "outside.txt", "outside");
    write(folder.path(), "root2/a.txt", "outside");
    #[cfg(unix)]
    for (link, target) in [
        ("out", "../outside.txt"),
        ("up", ".."),
        ("d/root", "../../root2"),
        ("etc", "/etc"),
        ("in", "a.txt"),
        ("loop", "loop"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link)).expect("a link can be made");
    }
    let app = App::new()
        .files("/plain", StaticFiles::folder(&root))
        .files("/all", StaticFiles::folder(&root).hidden_files(true))
        .files("/of/{tenant}", StaticFiles::folder(&root).precompressed(true))
        .nest("/page", Router::new().files("/", StaticFiles::folder(&root).fallback("index.html")));
    Fixture { client: app.test().without_cookies(), root, _folder: folder }
});

/// Parts of paths. Each byte of the input selects one, so that the fuzzer soon finds dangerous
/// paths.
const PARTS: [&str; 32] = [
    "/",
    "//",
    "..",
    ".",
    "%2e",
    "%2E%2e",
    "%2f",
    "%5c",
    "\\",
    "%00",
    "%",
    "%25",
    "a.txt",
    "b%20c.txt",
    "d",
    "e",
    "f.css",
    "index.html",
    ".env",
    ".git",
    "config",
    "...",
    "out",
    "up",
    "root",
    "etc",
    "passwd",
    "in",
    "loop",
    "outside.txt",
    "%c3%a4",
    "%252e",
];

/// Checks that content is a file below the root, the one that the path names, and that a redirect
/// stays on this host.
fn check(answer: &Answer, prefix: &str, path: &[u8], allows_hidden: bool) {
    let path = String::from_utf8_lossy(path);
    match answer.status {
        200 => {
            let content = std::str::from_utf8(&answer.content).expect("all files are text");
            let (kind, name) =
                content.split_once(':').unwrap_or_else(|| panic!("{content:?} of {path}"));
            assert!(
                kind == "inside" || (kind == "hidden" && allows_hidden),
                "{content:?} of {path}"
            );
            assert!(FIXTURE.root.join(name).is_file());
            // A query is no part of the path, and a `#` ends it.
            let asked = path.split(['?', '#']).next().unwrap_or_default();
            let asked = percent_decode_str(asked).decode_utf8().expect("only UTF-8 names a file");
            let is_page = prefix == "/page/" && name == "index.html";
            let is_index = name.strip_suffix("index.html").is_some_and(|folder| asked == folder);
            let is_link = asked == "in" && name == "a.txt";
            assert!(
                asked == name || is_index || is_page || is_link,
                "{name} is what {asked:?} got"
            );
        }
        308 => {
            let location = answer.header("location").expect("a redirect says where to");
            assert!(
                location.starts_with('/')
                    && !location.starts_with("//")
                    && !location.starts_with("/\\"),
                "{location}"
            );
            assert!(
                location.split(['?', '#']).next().is_some_and(|path| path.ends_with('/')),
                "{location} of {path}"
            );
        }
        400 | 404 | 414 | 431 => {}
        status => panic!("{status} of {path}"),
    }
}

fuzz_target!(|input: &[u8]| {
    let made: String =
        input.iter().take(64).map(|&byte| PARTS[usize::from(byte) % PARTS.len()]).collect();
    for path in [input, made.as_bytes()].into_iter().filter(|path| is_target(path)) {
        for (prefix, allows_hidden) in
            [("/plain/", false), ("/all/", true), ("/of/../", false), ("/page/", false)]
        {
            let answer =
                ask(&FIXTURE.client, Method::GET, &[prefix.as_bytes(), path].concat(), &[], b"");
            check(&answer, prefix, path, allows_hidden);
        }
        // Without a prefix, the path also selects the route.
        let answer = ask(&FIXTURE.client, Method::GET, &[b"/", path].concat(), &[], b"");
        let text = String::from_utf8_lossy(&answer.content);
        assert!(
            !text.starts_with("outside")
                && (path.starts_with(b"all") || !text.starts_with("hidden")),
            "{text}"
        );
    }
});
