//! Which paths of requests lead to a file, and which lead nowhere.

use super::*;

#[test]
fn hostile_paths_are_not_found() {
    let site = Site::new(&[
        ("a/b.txt", "b"),
        (".env", "key"),
        (".git/config", "x"),
        ("a/.hidden/c.txt", "c"),
    ]);
    for (prefix, app) in
        [("", App::new().files("/", site.files())), ("/s", App::new().files("/s", site.files()))]
    {
        let client = app.test();
        client.get(&format!("{prefix}/a/b.txt")).send().assert_text("b");
        for path in [
            "/../secret.txt",
            "/..%2fsecret.txt",
            "/..%2Fsecret.txt",
            "/%2e%2e/secret.txt",
            "/%2E%2E%2Fsecret.txt",
            "/.%2e/secret.txt",
            "/a/../../secret.txt",
            "/a/%2e%2e/%2e%2e/secret.txt",
            "/%252e%252e/secret.txt",
            "/%5c..%5c..%5csecret.txt",
            "/..%5csecret.txt",
            "/a%5cb.txt",
            "/a%2fb.txt",
            "/a/./b.txt",
            "/a//b.txt",
            "//a/b.txt",
            "//etc/passwd",
            "/%2fetc%2fpasswd",
            "/a/b.txt%00",
            "/a/b.txt%00.html",
            "/%00",
            "/a/b.txt%0a",
            "/%",
            "/%zz",
            "/%ff%fe",
            "/%c0%ae%c0%ae/secret.txt",
            "/.env",
            "/%2eenv",
            "/.git/config",
            "/.git/",
            "/.git",
            "/a/.hidden/c.txt",
            "/c:/windows",
            "/a/b.txt/",
            "/a/b.txt/c",
        ] {
            let response = client.get(&format!("{prefix}{path}")).send();
            assert_eq!(response.status(), 404, "{path}: {response:?}");
        }
    }
}

#[test]
fn names_that_are_too_long_are_not_found() {
    let client = digits().at_root();
    let segment = "x".repeat(256);
    client.get(&format!("/{segment}")).send().assert_status(404);
    client.get(&format!("/{segment}/")).send().assert_status(404);
    // These paths are longer than any path of the system.
    client.get(&format!("/{}", vec!["x".repeat(200); 25].join("/"))).send().assert_status(404);
    client.get(&format!("/{}", "x/".repeat(3000))).send().assert_status(404);
}

#[test]
fn hidden_files_are_served_if_allowed() {
    let site = Site::new(&[(".well-known/a.txt", "a"), (".env", "key")]);
    let client = App::new().files("/", site.files().hidden_files(true)).test();
    client.get("/.well-known/a.txt").send().assert_text("a");
    client.get("/.env").send().assert_text("key");
    client.get("/%2e%2e/secret.txt").send().assert_status(404);
}

#[test]
fn names_are_decoded() {
    let site = Site::new(&[
        ("a b.txt", "space"),
        ("100%.txt", "percent"),
        ("café.txt", "é"),
        ("q?x#y.txt", "marks"),
    ]);
    let client = site.at_root();
    client.get("/a%20b.txt").send().assert_text("space");
    client.get("/100%25.txt").send().assert_text("percent");
    client.get("/caf%C3%A9.txt").send().assert_text("é");
    client.get("/q%3fx%23y.txt").send().assert_text("marks");
    client.get("/a+b.txt").send().assert_status(404);
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_the_folder_only() {
    use std::os::unix::fs::symlink;

    let site = Site::new(&[("real/a.txt", "a")]);
    let secret = site.0.path().join("secret.txt");
    symlink("real/a.txt", site.path("relative.txt")).unwrap();
    symlink(site.path("real"), site.path("absolute")).unwrap();
    symlink("../secret.txt", site.path("out.txt")).unwrap();
    symlink(&secret, site.path("absolutely-out.txt")).unwrap();
    symlink(site.0.path(), site.path("up")).unwrap();
    symlink("loop", site.path("loop")).unwrap();
    let outside = ["/out.txt", "/absolutely-out.txt", "/up/secret.txt", "/up/public/real/a.txt"];
    let client = site.at_root();
    client.get("/relative.txt").send().assert_text("a");
    client.get("/absolute/a.txt").send().assert_text("a");
    for target in &outside[..3] {
        client.get(target).send().assert_status(404);
    }
    // This path leads out of the folder and in again, and its target is inside.
    client.get(outside[3]).send().assert_text("a");
    client.get("/loop").send().assert_status(404);
    let client = App::new().files("/", site.files().symlinks_outside(true)).test();
    for target in &outside[..3] {
        client.get(target).send().assert_text("secret");
    }
    client.get("/../secret.txt").send().assert_status(404);
}

#[cfg(unix)]
#[test]
fn a_path_that_is_not_a_file_is_not_found_without_blocking() {
    let site = digits();
    let status = std::process::Command::new("mkfifo").arg(site.path("fifo.txt")).status().unwrap();
    assert!(status.success());
    std::os::unix::fs::symlink("/dev/zero", site.path("zero")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let files = site.files().symlinks_outside(true);
    std::thread::spawn(move || {
        let client = App::new().files("/", files).test();
        let statuses = ["/fifo.txt", "/fifo.txt/", "/socket", "/zero"]
            .map(|target| client.get(target).send().status().as_u16());
        sender.send(statuses).unwrap();
    });
    let statuses =
        receiver.recv_timeout(Duration::from_secs(10)).expect("nothing waits for the other end");
    assert_eq!(statuses, [404; 4]);
}

#[test]
fn redirects_never_lead_to_another_host() {
    let site = Site::new(&[("docs/index.html", "docs"), ("index.html", "index")]);
    let client = App::new()
        .nest("/{tenant}", Router::new().files("/", site.files()))
        .files("/", site.files())
        .test();
    for target in [
        "//evil.example/..",
        "//evil.example/%2e%2e",
        "//evil.example/docs",
        "//evil.example",
        "//docs",
        "/%2f%2fevil.example/docs/..",
        "/.//docs",
        "/%5cevil.example/..",
    ] {
        let response = client.get(target).send();
        assert!(!response.status().is_redirection(), "{target}: {response:?}");
    }
    // An encoded separator in a captured prefix stays encoded, so it is part of a name.
    let response = client.get("/%2fevil.example/docs").send();
    response.assert_status(308).assert_header("location", "/%2fevil.example/docs/");
    // The host of an absolute target is not used.
    let response = client.get("http://evil.example/docs/docs").send();
    response.assert_status(308).assert_header("location", "/docs/docs/");
}

#[test]
fn an_escaped_prefix_does_not_bypass_its_router() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("private")).unwrap();
    fs::write(folder.path().join("private/plan.txt"), "secret").unwrap();
    let public = || StaticFiles::folder(folder.path());
    let private = || StaticFiles::folder(folder.path().join("private"));
    let auth = || middleware::BasicAuth::user("ada", "sesame");
    let apps = [
        (
            "",
            App::new()
                .files("/", public())
                .nest("/private", Router::new().files("/", private()).with(auth())),
        ),
        (
            "",
            App::new()
                .files("/", public())
                .merge(Router::new().files("/private", private()).with(auth())),
        ),
        (
            "/a",
            App::new()
                .files("/a", public())
                .merge(Router::new().files("/a/private", private()).with(auth())),
        ),
        (
            "/a",
            App::new()
                .nest("/a", Router::new().files("/", public()))
                .nest("/a/private", Router::new().files("/", private()).with(auth())),
        ),
    ];
    for (prefix, app) in apps {
        let client = app.test();
        let plan = format!("{prefix}/private/plan.txt");
        client.get(&plan).send().assert_status(401);
        client.get(&plan).basic("ada", "sesame").send().assert_text("secret");
        for escaped in ["/%70rivate/plan.txt", "/private/%70lan.txt", "/priv%61te/plan.txt?a"] {
            let answer = client.get(&format!("{prefix}{escaped}")).send();
            assert!(
                [308, 401].contains(&answer.status().as_u16()),
                "{prefix}{escaped}: {answer:?}"
            );
        }
        for escaped in [
            "/private%2Fplan.txt",
            "/.%2Fprivate/plan.txt",
            "/x/../private/plan.txt",
            "/./%70rivate/plan.txt",
        ] {
            let answer = client.get(&format!("{prefix}{escaped}")).send();
            assert!(
                [401, 404].contains(&answer.status().as_u16()),
                "{prefix}{escaped}: {answer:?}"
            );
        }
    }
}

/// Browsers read a backslash as a slash, so that `/\host/` is a link to that host, as `//host/` is.
#[test]
fn a_folder_redirects_to_no_other_host() {
    let site = Site::new(&[("a/index.html", "a")]);
    let client = App::new().nest("/{tenant}", Router::new().files("/", site.files())).test();
    client.get("/t/a").send().assert_status(308).assert_header("location", "/t/a/");
    for (path, status) in [("/\\evil.example/a", 400), ("//evil.example/a", 404), ("//t/a", 404)] {
        client.get(path).send().assert_status(status).assert_no_header("location");
    }
}
