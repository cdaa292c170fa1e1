//! Conditional requests, ranges and precompressed variants of static files.

use super::*;

#[test]
fn precompressed_variants_are_sent_to_clients_that_accept_them() {
    let site = Site::new(&[
        ("app.js", "plain"),
        ("app.js.br", "brotli"),
        ("app.js.gz", "gzip!"),
        ("only.js.gz", "gzip!"),
        ("index.html", "page"),
        ("index.html.zst", "zstd!"),
    ]);
    let client = App::new().files("/", site.files().precompressed(true)).test();
    let rows = [
        (None, "plain", None),
        (Some("identity"), "plain", None),
        (Some("gzip, br"), "brotli", Some("br")),
        (Some("gzip"), "gzip!", Some("gzip")),
        (Some("br;q=0.1, gzip;q=0.2"), "gzip!", Some("gzip")),
        (Some("br;q=0, gzip;q=0"), "plain", None),
        (Some("zstd"), "plain", None),
        (Some("*"), "brotli", Some("br")),
    ];
    let mut tags = std::collections::HashMap::new();
    for (accept, text, coding) in rows {
        let request = client.get("/app.js");
        let response = match accept {
            Some(accept) => request.header("accept-encoding", accept).send(),
            None => request.send(),
        };
        response
            .assert_text(text)
            .assert_header("vary", "accept-encoding")
            .assert_header("content-type", "text/javascript; charset=utf-8");
        assert_eq!(response.header("content-encoding"), coding, "{accept:?}");
        let tag = response.header("etag").unwrap().trim_start_matches("W/").to_owned();
        assert_eq!(
            *tags.entry(text).or_insert_with(|| tag.clone()),
            tag,
            "the same bytes have the same tag"
        );
    }
    let different: std::collections::HashSet<_> = tags.values().collect();
    assert_eq!((tags.len(), different.len()), (3, 3), "other bytes have another tag: {tags:?}");

    let response = client.get("/").header("accept-encoding", "zstd").send();
    response.assert_text("zstd!").assert_header("content-encoding", "zstd");
    client.get("/only.js").header("accept-encoding", "gzip").send().assert_status(404);
    let response = client.get("/app.js.gz").header("accept-encoding", "gzip").send();
    response.assert_no_header("content-encoding").assert_header("content-type", "application/gzip");
    // The tag of one coding does not match another.
    let response = client
        .get("/app.js")
        .header("accept-encoding", "gzip")
        .header("if-none-match", &tags["gzip!"])
        .send();
    response.assert_status(304).assert_header("vary", "accept-encoding");
    client.get("/app.js").header("if-none-match", &tags["gzip!"]).send().assert_status(200);
    // Precompressed variants are turned off, so none is searched.
    let client = site.at_root();
    client
        .get("/app.js")
        .header("accept-encoding", "br")
        .send()
        .assert_text("plain")
        .assert_no_header("vary");
}

#[test]
fn conditions_are_evaluated_before_anything_is_sent() {
    let site = digits();
    let client = App::new()
        .files("/", site.files().max_age(Duration::from_secs(9)).header("x-a", "b"))
        .test();
    let tag = strong_tag(&client, "/digits.txt");
    let date = client.get("/digits.txt").send().header("last-modified").unwrap().to_owned();
    let past = "Sun, 06 Nov 1994 08:49:37 GMT";
    let rows: &[(&[(&str, &str)], u16)] = &[
        (&[("if-none-match", &tag)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", &format!("W/{tag}"))], 304),
        (&[("if-none-match", "\"other\"")], 200),
        (&[("if-none-match", "\"other\""), ("if-modified-since", &date)], 200),
        (&[("if-none-match", &tag), ("if-modified-since", past)], 304),
        (&[("if-modified-since", &date)], 304),
        (&[("if-modified-since", past)], 200),
        (&[("if-modified-since", "nonsense")], 200),
        (&[("if-match", &tag)], 200),
        (&[("if-match", "\"other\"")], 412),
        (&[("if-match", "other")], 400),
        (&[("if-unmodified-since", past)], 412),
        (&[("if-unmodified-since", &date)], 200),
        (&[("if-match", "\"other\""), ("if-none-match", &tag)], 412),
        (&[("if-none-match", &tag), ("range", "bytes=0-1")], 304),
        (&[("if-match", "\"other\""), ("range", "bytes=0-1")], 412),
        (&[("if-none-match", "\"other\""), ("range", "bytes=0-1")], 206),
    ];
    for (headers, status) in rows {
        for method in [Method::GET, Method::HEAD] {
            let mut request = client.request(method.clone(), "/digits.txt");
            for (name, value) in *headers {
                request = request.header(name, value);
            }
            let expected = if method == Method::HEAD && *status == 206 { 200 } else { *status };
            let response = request.send();
            assert_eq!(response.status(), expected, "{method} {headers:?}");
            if expected == 304 {
                let kept =
                    response.assert_text("").assert_header("etag", &tag).assert_header("x-a", "b");
                kept.assert_header("cache-control", "max-age=9");
                kept.assert_no_header("content-type").assert_no_header("last-modified");
            }
        }
    }
    client.get("/missing").header("if-none-match", "*").send().assert_status(404);
}

#[test]
fn a_changed_file_has_another_tag() {
    let site = digits();
    let client = site.at_root();
    let tag = strong_tag(&client, "/digits.txt");
    let modified = fs::metadata(site.path("digits.txt")).unwrap().modified().unwrap();
    // The new content has the same length, and its date is set to the same value.
    site.write("digits.txt", "9876543210");
    set_modified(&site.path("digits.txt"), modified);
    let response = client.get("/digits.txt").header("if-none-match", &tag).send();
    response.assert_status(200).assert_text("9876543210");
    let response =
        client.get("/digits.txt").header("range", "bytes=5-").header("if-range", &tag).send();
    response.assert_status(200).assert_text("9876543210");
}

#[test]
fn a_range_is_a_part() {
    let site = digits();
    let client = site.at_root();
    let rows = [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=5-500", "56789", "bytes 5-9/10"),
        ("bytes=-500", "0123456789", "bytes 0-9/10"),
        ("bytes=0-1,2-3", "0123", "bytes 0-3/10"),
        ("bytes=9-,100-", "9", "bytes 9-9/10"),
    ];
    for (range, text, content_range) in rows {
        client
            .get("/digits.txt")
            .header("range", range)
            .send()
            .assert_status(206)
            .assert_text(text)
            .assert_header("content-range", content_range)
            .assert_header("content-type", "text/plain; charset=utf-8");
    }
    for ignored in ["bytes=5-4", "bytes=a", "lines=0-1", "bytes=", "0-1"] {
        let response = client.get("/digits.txt").header("range", ignored).send();
        response.assert_status(200).assert_text("0123456789").assert_no_header("content-range");
    }
    for unsatisfiable in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
        let response = client.get("/digits.txt").header("range", unsatisfiable).send();
        response.assert_status(416).assert_header("content-range", "bytes */10");
    }
    client
        .head("/digits.txt")
        .header("range", "bytes=0-3")
        .send()
        .assert_status(200)
        .assert_header("content-length", "10");
    let twice =
        client.get("/digits.txt").header("range", "bytes=0-3").header("range", "bytes=0-3").send();
    twice.assert_status(200);
}

#[test]
fn an_empty_file_is_sent_and_has_no_ranges() {
    let site = Site::new(&[("empty.txt", "")]);
    let client = site.at_root();
    client
        .get("/empty.txt")
        .send()
        .assert_status(200)
        .assert_text("")
        .assert_header("content-length", "0");
    let response = client.get("/empty.txt").header("range", "bytes=0-").send();
    response.assert_status(416).assert_header("content-range", "bytes */0");
    client.get("/empty.txt").header("range", "bytes=-1").send().assert_status(200);
}

#[test]
fn several_ranges_are_several_parts() {
    let site = Site::new(&[]);
    let content: Vec<u8> = (0..300_000_u32).map(|number| b'a' + (number % 26) as u8).collect();
    site.write("long.txt", &content);
    let client = site.at_root();
    let response = client.get("/long.txt").header("range", "bytes=0-1, 1000-100999, -3").send();
    response.assert_status(206).assert_no_header("content-range");
    let content_type = response.header("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut expected = Vec::new();
    for (start, end) in [(0, 2), (1000, 101_000), (299_997, 300_000)] {
        let last = end - 1;
        let head = format!(
            "\r\n--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes \
             {start}-{last}/300000\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&content[start..end]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(response.body() == expected);
    response.assert_header("content-length", &expected.len().to_string());

    let many = vec!["0-0"; 1000].join(",");
    let response = client.get("/long.txt").header("range", &format!("bytes={many}")).send();
    response.assert_status(200).assert_header("content-length", "300000");
    let overlapping = vec!["0-"; 30].join(",");
    let response = client.get("/long.txt").header("range", &format!("bytes={overlapping}")).send();
    response.assert_status(206).assert_header("content-length", "300000");
}

#[test]
fn a_range_of_another_version_gets_the_whole_file() {
    let site = digits();
    let client = site.at_root();
    let tag = strong_tag(&client, "/digits.txt");
    let part = |if_range: &str| {
        client
            .get("/digits.txt")
            .header("range", "bytes=2-3")
            .header("if-range", if_range)
            .send()
            .status()
            .as_u16()
    };
    assert_eq!(part(&tag), 206);
    assert_eq!(part(&format!("W/{tag}")), 200);
    assert_eq!(part("\"stale\""), 200);
    assert_eq!(part("nonsense"), 200);
    assert_eq!(part("Sun, 06 Nov 1994 08:49:37 GMT"), 200);
    // A date that was set by hand does not distinguish versions, even if it matches.
    set_modified(
        &site.path("digits.txt"),
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
    );
    assert_eq!(part("Sun, 06 Nov 1994 08:49:37 GMT"), 200);
    // A range that cannot be satisfied is ignored as well.
    let response = client
        .get("/digits.txt")
        .header("range", "bytes=99-")
        .header("if-range", "\"stale\"")
        .send();
    response.assert_status(200);
}

/// Waits until the date of a file distinguishes its versions: it is older than a second then.
fn settled_date(site: &Site, path: &str) -> String {
    let client = App::new().files("/", site.files().etag(false)).test();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let date = client.get(path).send().header("last-modified").unwrap().to_owned();
        let part = client.get(path).header("range", "bytes=2-3").header("if-range", &date).send();
        if part.status() == 206 {
            return date;
        }
        assert!(Instant::now() < deadline, "the date does not become strong: {part:?}");
        // Polls, because no event tells that time has passed.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A client that has a part of one coding must not get the rest of another one. The codings have
/// the same date, so the date does not tell which one a client has.
#[test]
fn a_date_does_not_select_a_part_of_a_file_with_several_codings() {
    let text = "milk and tea ".repeat(500);
    let site = Site::new(&[("list.txt", &text), ("list.txt.gz", "(compressed)")]);
    let date = settled_date(&site, "/list.txt");
    let compressed = |files| App::new().files("/", files).with(middleware::Compression::new());
    for (app, has_date) in [
        (App::new().files("/", site.files().etag(false).precompressed(true)), true),
        (App::new().files("/", site.files().precompressed(true)), true),
        (compressed(site.files().etag(false)), true),
        // The tag is weak after a compression, so clients send the date.
        (compressed(site.files()), true),
        (App::new().files("/", site.files()), false),
    ] {
        let client = app.test();
        for coding in ["gzip", "identity"] {
            let part = client
                .get("/list.txt")
                .header("accept-encoding", coding)
                .header("range", "bytes=2-3")
                .header("if-range", &date)
                .send();
            let expected = if has_date { 200 } else { 206 };
            assert_eq!(part.status(), expected, "{coding}: {part:?}");
            assert_eq!(part.header("content-range").is_none(), has_date, "{part:?}");
            // Without a condition the client knows what it asks for.
            let request = client.get("/list.txt").header("accept-encoding", "identity");
            request.header("range", "bytes=2-3").send().assert_status(206);
        }
    }
}
