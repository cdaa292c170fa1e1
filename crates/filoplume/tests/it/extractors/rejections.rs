//! What each extractor rejects: the status, and a message that names the place.

use super::*;

#[test]
fn a_json_rejection_names_the_place() {
    let client = showing_errors(App::new().post("/", |Json(order): Json<Order>| show(order)));
    check(
        &post(&client, JSON, r#"{"mail":"a@b.c","items":[{"name":"x","count":1}]}"#),
        expect![[r#"200 Order { mail: "a@b.c", items: [Item { name: "x", count: 1 }] }"#]],
    );
    check(
        &post(&client, JSON, "{}"),
        expect![[r#"
        422 `mail` is wrong: it is missing
          mail: it is missing"#]],
    );
    check(
        &post(&client, JSON, r#"{"mail":1,"items":[]}"#),
        expect![[r#"
        422 `mail` is wrong: expected a text, and got 1
          mail: expected a text, and got 1"#]],
    );
    check(
        &post(&client, JSON, r#"{"mail":"a"}"#),
        expect![[r#"
        422 `items` is wrong: it is missing
          items: it is missing"#]],
    );
    check(
        &post(
            &client,
            JSON,
            r#"{"mail":"a","items":[{"name":"x","count":1},{"name":"y","count":256}]}"#,
        ),
        expect![[r#"
            422 `items[1].count` is wrong: expected a whole number from 0 to 255, and got 256
              items[1].count: expected a whole number from 0 to 255, and got 256"#]],
    );
    check(
        &post(&client, JSON, r#"{"mail":"a","items":[{"name":"x"}]}"#),
        expect![[r#"
        422 `items[0].count` is wrong: it is missing
          items[0].count: it is missing"#]],
    );
    check(
        &post(&client, JSON, "[".repeat(100_000)),
        expect!["400 the content is not JSON: EOF while parsing a list at line 1 column 100000"],
    );
    check(
        &post(&client, JSON, "[]"),
        expect![
            "422 the content is not as expected: expected an object, and got a list (line 1, \
             column 2)"
        ],
    );
}

#[test]
fn content_of_another_type_is_not_read_as_json() {
    let client = showing_errors(App::new().post("/", |Json(order): Json<Order>| show(order)));
    check(
        &post(&client, "text/json", "{}"),
        expect!["415 the content must be JSON: send `content-type: application/json`"],
    );
    check(
        &client.post("/").body("{}").send(),
        expect!["415 the content must be JSON: send `content-type: application/json`"],
    );
}

#[test]
fn malformed_json_is_a_400_with_line_and_column() {
    let client = showing_errors(App::new().post("/", |Json(order): Json<Order>| show(order)));
    check(
        &post(&client, JSON, ""),
        expect!["400 the content is not JSON: EOF while parsing a value at line 1 column 0"],
    );
    check(
        &post(&client, JSON, r#"{"mail":"#),
        expect!["400 the content is not JSON: EOF while parsing a value at line 1 column 8"],
    );
    check(
        &post(&client, JSON, r#"{"mail":"a","items":[]} x"#),
        expect!["400 the content is not JSON: trailing characters at line 1 column 25"],
    );
    check(
        &post(&client, JSON, b"{\"mail\":\"\xff\"}"),
        expect!["400 the content is not JSON: invalid unicode code point at line 1 column 10"],
    );
    // The type is wrong as well, and is found first. The message is still about the syntax.
    let list = showing_errors(App::new().post("/", |Json(list): Json<Vec<String>>| list.concat()));
    check(
        &post(&list, JSON, r#"{"mail":"a"#),
        expect!["400 the content is not JSON: EOF while parsing a string at line 1 column 10"],
    );
    check(
        &post(&client, JSON, "{} {}"),
        expect!["400 the content is not JSON: trailing characters at line 1 column 4"],
    );
    let any =
        showing_errors(App::new().post("/", |Json(any): Json<serde_json::Value>| any.to_string()));
    check(
        &post(&any, JSON, "[".repeat(100_000)),
        expect!["400 the content is not JSON: recursion limit exceeded at line 1 column 128"],
    );
}

#[test]
fn a_query_rejection_names_the_field() {
    let client = showing_errors(App::new().get("/", |Query(search): Query<Search>| show(search)));
    let get = |query: &str| client.get(&format!("/{query}")).send();
    check(
        &get("?q=red+fox&tag=a&tag=b%26"),
        expect![[r#"200 Search { q: "red fox", page: None, tag: ["a", "b&"] }"#]],
    );
    check(
        &get(""),
        expect![[r#"
        400 the query cannot be read: `q` is wrong: it is missing
          q: it is missing"#]],
    );
    check(
        &get("?q=fox&page=-1"),
        expect![[r#"
            400 the query cannot be read: `page` is wrong: expected a whole number, in digits
              page: expected a whole number, in digits"#]],
    );
    check(
        &get("?q=fox&page=1&page=2"),
        expect![[r#"
            400 the query cannot be read: `page` is wrong: it occurs more than once
              page: it occurs more than once"#]],
    );
    check(
        &get("?q=%F"),
        expect![[r#"
            400 the query cannot be read: `q` has a `%` without two hexadecimal digits after it
              q: has a `%` without two hexadecimal digits after it"#]],
    );
    check(
        &get("?q=%FF"),
        expect![[r#"
        400 the query cannot be read: `q` is not UTF-8
          q: is not UTF-8"#]],
    );
}

fn reading_forms() -> TestClient {
    let read = |Form(search): Form<Search>| show(search);
    showing_errors(App::new().route("/", get(read).post(read).put(read)))
}

#[test]
fn a_form_is_in_the_content_or_in_the_query() {
    let client = reading_forms();
    check(
        &post(&client, "Application/X-WWW-Form-Urlencoded; charset=UTF-8", "q=a&page="),
        expect![[r#"200 Search { q: "a", page: None, tag: [] }"#]],
    );
    check(&client.get("/?q=a").send(), expect![[r#"200 Search { q: "a", page: None, tag: [] }"#]]);
    client.request(Method::HEAD, "/?q=a").send().assert_status(200);
    client.post("/").body("q=a").send().assert_status(415).assert_header("accept", FORM);
    check(
        &client.post("/?q=a").send(),
        expect![
            "415 the content must be a form: send `content-type: \
             application/x-www-form-urlencoded`"
        ],
    );
    check(
        &post(&client, JSON, "q=a"),
        expect![
            "415 the content must be a form: send `content-type: \
             application/x-www-form-urlencoded`"
        ],
    );
}

#[test]
fn a_form_rejection_names_the_field() {
    let client = reading_forms();
    check(
        &post(&client, FORM, "q=a&page=x"),
        expect![[r#"
            422 the form cannot be read: `page` is wrong: expected a whole number, in digits
              page: expected a whole number, in digits"#]],
    );
    check(
        &client.get("/?q=a&page=x").send(),
        expect![[r#"
            422 the form cannot be read: `page` is wrong: expected a whole number, in digits
              page: expected a whole number, in digits"#]],
    );
    check(
        &post(&client, FORM, "page=1"),
        expect![[r#"
        422 the form cannot be read: `q` is wrong: it is missing
          q: it is missing"#]],
    );
    check(
        &post(&client, FORM, "q=%zz"),
        expect![[r#"
        400 the form cannot be read: `q` has a `%` without two hexadecimal digits after it
          q: has a `%` without two hexadecimal digits after it"#]],
    );
    check(
        &post(&client, FORM, b"q=\xff"),
        expect![[r#"
        400 the form cannot be read: `q` is not UTF-8
          q: is not UTF-8"#]],
    );
}

#[test]
fn a_form_that_is_too_large_is_a_413() {
    let client = reading_forms();
    check(
        &post(&client, FORM, "a=&".repeat(10_001)),
        expect![
            "413 the form cannot be read: there are more than the 10000 fields that are accepted"
        ],
    );
    check(
        &post(&client, FORM, vec![b'a'; 3 * 1024 * 1024]),
        expect!["413 the content is longer than the 2097152 bytes that this route accepts"],
    );
}

#[test]
fn a_path_rejection_names_the_capture() {
    /// Its fields are not known when the app starts.
    #[derive(Deserialize)]
    struct Flat {
        id: String,
        #[serde(flatten)]
        rest: HashMap<String, String>,
    }
    let app = App::new()
        .get("/one/{id}", |Path(id): Path<u8>| show(id))
        .get("/two/{a}/{b}", |Path((a, b)): Path<(String, char)>| format!("{a} {b}"))
        .get("/rest/{*path}", |Path(path): Path<String>| path)
        .get("/wrong/{a}/{b}", |Path(flat): Path<Flat>| format!("{} {}", flat.id, flat.rest.len()));
    let client = showing_errors(app);
    let get = |path: &str| client.get(path).send();
    check(&get("/one/255"), expect!["200 255"]);
    check(
        &get("/one/256"),
        expect![[r#"
        400 `id` in the path is wrong: `256` is not a whole number from 0 to 255
          id: `256` is not a whole number from 0 to 255"#]],
    );
    check(&get("/one/%32"), expect!["200 2"]);
    check(
        &get("/one/%3"),
        expect![[r#"
            400 `id` in the path has a `%` without two hexadecimal digits after it
              id: has a `%` without two hexadecimal digits after it"#]],
    );
    check(
        &get("/one/%FF"),
        expect![[r#"
        400 `id` in the path is not UTF-8
          id: is not UTF-8"#]],
    );
    check(&get("/two/a%2Fb/%C3%B6"), expect!["200 a/b ö"]);
    check(
        &get("/two/a/bc"),
        expect![[r#"
        400 `b` in the path is wrong: `bc` is not a single character
          b: `bc` is not a single character"#]],
    );
    check(&get("/rest/a/b%20c"), expect!["200 a/b c"]);
    check(&get("/wrong/1/2"), expect!["500 (nothing)"]);
}

#[test]
fn a_header_rejection_names_the_header() {
    let app = App::new()
        .get("/cats", |Header(Cats(count)): Header<Cats>| show(count))
        .get("/maybe", |cats: Option<Header<Cats>>| show(cats.map(|cats| cats.0.0)))
        .get("/own", |cats: Result<Header<Cats>, HeaderRejection>| {
            show(cats.map_err(|error| error.problem).is_err())
        });
    let client = showing_errors(app);
    check(&client.get("/cats").header("x-cats", "3").send(), expect!["200 3"]);
    check(
        &client.get("/cats").send(),
        expect![[r#"
        400 the header `X-Cats` is missing
          X-Cats: is missing"#]],
    );
    check(
        &client.get("/cats").header("x-cats", "many").send(),
        expect![[r#"
        400 the header `X-Cats` is wrong: invalid digit found in string
          X-Cats: is wrong: invalid digit found in string"#]],
    );
    check(
        &client.get("/cats").header("x-cats", "1").header("x-cats", "2").send(),
        expect![[r#"
            400 the header `X-Cats` occurs more than once
              X-Cats: occurs more than once"#]],
    );
    check(&client.get("/maybe").send(), expect!["200 None"]);
    check(&client.get("/maybe").header("x-cats", "3").send(), expect!["200 Some(3)"]);
    check(
        &client.get("/maybe").header("x-cats", "-3").send(),
        expect![[r#"
        400 the header `X-Cats` is wrong: invalid digit found in string
          X-Cats: is wrong: invalid digit found in string"#]],
    );
    check(&client.get("/own").send(), expect!["200 true"]);
}

#[test]
fn the_framework_parses_common_headers() {
    let app = App::new()
        .get("/accept", |Header(accept): Header<Accept>| {
            show(accept.best_of(&["text/html", "text/plain"]))
        })
        .get(
            "/some",
            |Header(host): Header<Host>,
             agent: Option<Header<UserAgent>>,
             origin: Option<Header<Origin>>| {
                format!("{} {:?} {agent:?} {origin:?}", host.name(), host.port())
            },
        )
        .post("/", |Header(content_type): Header<ContentType>| {
            show(content_type.parameter("charset"))
        });
    let client = showing_errors(app);
    let accept =
        client.get("/accept").header("accept", "text/html;q=0.2").header("accept", "text/plain");
    check(&accept.send(), expect![[r#"200 Some("text/plain")"#]]);
    check(
        &client.get("/accept").header("accept", "nonsense").send(),
        expect![[r#"
            400 the header `accept` is wrong: a range is not a `type/subtype`
              accept: is wrong: a range is not a `type/subtype`"#]],
    );
    check(
        &client.get("/some").header("host", "a.org:81").header("user-agent", "x/1").send(),
        expect![[r#"200 a.org Some(81) Some(Header(UserAgent("x/1"))) None"#]],
    );
    check(&post(&client, "text/plain; charset=\"utf-8\"", ""), expect![[r#"200 Some("utf-8")"#]]);
    check(
        &post(&client, "plain", ""),
        expect![[r#"
            400 the header `content-type` is wrong: it is not a `type/subtype`
              content-type: is wrong: it is not a `type/subtype`"#]],
    );
}

#[test]
fn fields_of_a_list_are_read_as_one_value() {
    let app = App::new().get("/", |Header(accept): Header<Accept>| {
        accept.best_of(&["text/a", "text/b", "text/c"]).unwrap_or("nothing")
    });
    let client = app.test();
    let best_of = |fields: [&str; 3]| {
        let request = fields.iter().fold(client.get("/"), |to, field| to.header("accept", field));
        request.send().text().to_owned()
    };
    assert_eq!(best_of(["text/a", "text/b;q=0.5", "text/c;q=0.1"]), "text/a");
    assert_eq!(best_of(["text/a;q=0.5", "text/b", "text/c;q=0.1"]), "text/b");
    assert_eq!(best_of(["text/a;q=0.5", "text/b;q=0.1", "text/c"]), "text/c");
}

#[test]
fn a_rejection_that_is_returned_with_a_question_mark_keeps_its_status() {
    fn json(value: Result<Json<u8>, JsonRejection>) -> Result<String> {
        Ok(show(value?.0))
    }
    fn query(value: Result<Query<Search>, QueryRejection>) -> Result<String> {
        Ok(show(value?.0))
    }
    fn form(value: Result<Form<Search>, FormRejection>) -> Result<String> {
        Ok(show(value?.0))
    }
    fn path(value: Result<Path<u8>, PathRejection>) -> Result<String> {
        Ok(show(value?.0))
    }
    let app = App::new().route("/", get(query).post(json).put(form)).get("/{id}", path);
    let client = showing_errors(app);
    check(
        &post(&client, JSON, "256"),
        expect![
            "422 the content is not as expected: expected a whole number from 0 to 255, and got \
             256 (line 1, column 3)"
        ],
    );
    check(
        &client.get("/").send(),
        expect![[r#"
        400 the query cannot be read: `q` is wrong: it is missing
          q: it is missing"#]],
    );
    check(
        &client.put("/").send(),
        expect![
            "415 the content must be a form: send `content-type: \
             application/x-www-form-urlencoded`"
        ],
    );
    check(
        &client.get("/x").send(),
        expect![[r#"
        400 `id` in the path is wrong: `x` is not a whole number from 0 to 255
          id: `x` is not a whole number from 0 to 255"#]],
    );
}
