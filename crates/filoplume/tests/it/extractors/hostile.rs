//! Extractors over a socket, and with random input.

use super::*;

/// This runs over a socket, so that the content arrives while the extractor reads it.
#[test]
fn a_chunked_content_has_the_same_limit_as_an_announced_one() {
    let app = App::new().post("/", |text: String| text.len().to_string()).build().unwrap();
    let server = Server::builder().bind("127.0.0.1:0").unwrap().build().unwrap();
    server.spawn(app).unwrap();
    let address = server.local_addrs()[0].to_string();
    let answer = |last_chunk: &str| {
        let mut request =
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        request.extend_from_slice(b"200000\r\n");
        request.resize(request.len() + 0x20_0000, b'x');
        request.extend_from_slice(format!("\r\n{last_chunk}0\r\n\r\n").as_bytes());
        let mut socket = TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.write_all(&request).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    let (whole, too_long) = (answer(""), answer("1\r\nx\r\n"));
    server.shutdown_handle().shutdown();
    server.wait();
    assert!(whole.ends_with("\r\n\r\n2097152"), "{whole}");
    assert!(too_long.starts_with("HTTP/1.1 413 "), "{too_long}");
}

/// This runs over a socket, too. `?` distinguishes an error of the engine about the content from an
/// error of the handler's own files.
#[test]
fn a_malformed_content_is_a_client_error_even_if_it_is_streamed() {
    let read = |mut body: Body| -> Result<String> {
        let mut content = Vec::new();
        body.read_to_end(&mut content)?;
        Ok(content.len().to_string())
    };
    // The content is not collected before the call. Otherwise the engine itself would refuse
    // content that is too short.
    let config = ServerConfig::default().buffered_content_bytes_max(0);
    let app = App::new().post("/", read).with(middleware::BodyLimit::new(10)).config(config);
    let app = app.start("127.0.0.1:0").unwrap();
    let answer = |chunks: &str| {
        let mut socket = TcpStream::connect(app.local_addr()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The content is sent once the handler waits for it.
        let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue";
        write!(socket, "{head}\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let mut word = [0; 25];
        socket.read_exact(&mut word).unwrap();
        socket.write_all(chunks.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(answer("a\r\n0123456789\r\n0\r\n\r\n"), "200");
    assert_eq!(answer("b\r\n0123456789a\r\n0\r\n\r\n"), "413");
    assert_eq!(answer("x\r\n0123456789\r\n0\r\n\r\n"), "400");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A panic would be a 500.
    #[test]
    fn no_input_is_a_server_error(
        content in proptest::collection::vec(any::<u8>(), 0..80),
        text in "\\PC{0,40}",
    ) {
        let app = App::new()
            .post("/json", |_: Valid<Json<Order>>| "")
            .post("/form", |_: Valid<Form<Search>>| "")
            .get(
                "/query",
                |_: Query<Search>, _: Result<Query<HashMap<String, u8>>, QueryRejection>| "",
            )
            .get("/headers", |_: Option<Header<Accept>>, _: Option<Header<Cats>>, _: ClientAddr| "")
            .get("/path/{a}/{b}", |_: Path<(u8, String)>| "")
            .trust_proxies(Proxies::loopback());
        let client = app.test();
        let encoded: String = content.iter().map(|byte| format!("%{byte:02x}")).collect();
        let is_plain = |found: &char| found.is_ascii_graphic() && !"?#".contains(*found);
        let printable: String = text.chars().filter(is_plain).collect();
        let answers = [
            client.post("/json").header("content-type", JSON).body(content.clone()).send(),
            client.post("/form").header("content-type", FORM).body(content.clone()).send(),
            client.post("/form").header("content-type", &text).body(text.clone()).send(),
            client.get(&format!("/query?q={encoded}&page={printable}")).send(),
            client.get(&format!("/path/{encoded}/{printable}")).send(),
            client
                .get("/headers")
                .header("accept", &text)
                .header("x-cats", &text)
                .header("x-forwarded-for", &text)
                .send(),
        ];
        for answer in answers {
            prop_assert!(!answer.status().is_server_error(), "{answer:?}");
        }
    }
}

#[test]
fn a_rejection_does_not_repeat_all_of_the_input() {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Only {
        #[serde(rename = "n")]
        _n: u8,
    }
    #[derive(Deserialize)]
    enum Colour {
        Red,
    }
    let client = App::new()
        .post("/struct", |_: Json<Only>| "read")
        .post("/map", |_: Json<HashMap<String, u8>>| "read")
        .post("/form", |_: Form<HashMap<String, Colour>>| "read")
        .test();
    let long = "ä".repeat(100_000);
    let json = |path: &str, text: String| {
        client.post(path).header("content-type", "application/json").body(text).send()
    };
    let form = client.post("/form").header("content-type", "application/x-www-form-urlencoded");
    let value = json("/struct", format!("{{\"n\":\"{long}\"}}"));
    value.assert_contains("expected a whole number from 0 to 255, and got the text ");
    let answers = [
        value,
        json("/struct", format!("{{\"{long}\":1}}")),
        json("/map", format!("{{\"{long}\":\"{long}\"}}")),
        form.body(format!("{long}={long}")).send(),
    ];
    for answer in answers {
        answer.assert_status(422);
        assert!(answer.body().len() < 4000, "{} bytes", answer.body().len());
    }
    let _ = Colour::Red;
}
