//! Middleware that reads the content of requests before the handler.

use std::io::Read;

use filoplume::Key;
use filoplume::middleware::{Csrf, MethodOverride, Sessions};
use filoplume::prelude::*;
use filoplume::testing::{MultipartForm, TestClient, TestResponse};
use serde::Deserialize;

#[derive(Deserialize)]
struct Note {
    title: String,
}

/// Handlers for a note, a text `content` and a multipart form.
fn routes() -> Router {
    let parts = |mut form: Multipart| -> Result<String> {
        let first = form.next_field()?.map(|field| field.name().to_owned());
        Ok(first.unwrap_or_default())
    };
    Router::new()
        .post("/string", |text: String| text)
        .post("/bytes", |bytes: Vec<u8>| bytes.len().to_string())
        .post("/body", |body: Body| -> Result<String> {
            Ok(body.into_bytes(100)?.len().to_string())
        })
        .post("/json", |Json(note): Json<Note>| note.title)
        .post("/form", |Form(note): Form<Note>| note.title)
        .put("/form", |Form(note): Form<Note>| note.title)
        .post("/parts", parts)
        .post("/maybe", |note: Option<Json<Note>>| {
            note.map_or("none".to_owned(), |note| note.0.title)
        })
        .post("/length", |request: Request| request.body().len().map(|length| length.to_string()))
}

fn client(middleware: impl Middleware) -> TestClient {
    App::new().merge(routes()).with(middleware).development(true).test()
}

/// Sends a content to each handler that extracts it.
fn answers(client: &TestClient) -> Vec<TestResponse> {
    let note = [("title", "tea")];
    let part = MultipartForm::new().text("title", "tea");
    vec![
        client.post("/string").body("tea").send(),
        client.post("/string").body("tea").chunked().send(),
        client.post("/bytes").body("tea").send(),
        client.post("/body").body("tea").send(),
        client
            .post("/json")
            .header("content-type", "application/json")
            .body(r#"{"title":"tea"}"#)
            .send(),
        client
            .post("/maybe")
            .header("content-type", "application/json")
            .body(r#"{"title":"tea"}"#)
            .send(),
        client.post("/form").form(&note).send(),
        client.post("/parts").multipart(part).send(),
    ]
}

const READS: [fn(&mut Request); 4] = [
    |request| _ = request.body_mut().read_to_end(&mut Vec::new()),
    |request| _ = request.body_mut().read(&mut [0]),
    |request| _ = std::mem::take(request.body_mut()),
    |request| {
        let mut text = Vec::new();
        _ = request.body_mut().read_to_end(&mut text);
        request.body_mut().unread(text.get(1..).unwrap_or_default());
    },
];

#[test]
fn a_content_that_was_read_is_not_mistaken_for_an_empty_one() {
    for (index, read) in READS.into_iter().enumerate() {
        let client = client(move |mut request: Request, next: Next<'_>| {
            read(&mut request);
            next.run(request)
        });
        for answer in answers(&client) {
            let text = answer.assert_status(500).text();
            assert!(
                text.contains("put it back with `request.body_mut().unread"),
                "{index}: {text}"
            );
        }
        // There was no content that the middleware could have read.
        client.post("/string").send().assert_text("");
        client.post("/string").body("").send().assert_text("");
        // If the middleware took a chunked content away, it is unknown whether that had any bytes.
        let status = if index == 2 { 500 } else { 200 };
        client.post("/string").body("").chunked().send().assert_status(status);
        client.post("/bytes").body("").send().assert_text("0");
        client.post("/body").body("").send().assert_text("0");
        client.post("/maybe").send().assert_text("none");
        // A handler that takes the whole request is not checked.
        client.post("/length").body("tea").send().assert_status(200);
    }
}

#[test]
fn a_content_that_was_put_back_or_replaced_is_extracted() {
    let back: [fn(&mut Request) -> Result<()>; 5] = [
        |request| {
            let mut content = Vec::new();
            request.body_mut().read_to_end(&mut content)?;
            request.body_mut().unread(&content);
            Ok(())
        },
        |request| {
            let mut start = Vec::new();
            request.body_mut().take(2).read_to_end(&mut start)?;
            request.body_mut().unread(&start);
            Ok(())
        },
        |request| {
            let content = std::mem::take(request.body_mut()).into_bytes(1000)?;
            *request.body_mut() = Body::from(Vec::from(content));
            Ok(())
        },
        |request| {
            let body = std::mem::take(request.body_mut());
            *request.body_mut() = Body::from_reader(body);
            Ok(())
        },
        |_| Ok(()),
    ];
    for change in back {
        let client = client(move |mut request: Request, next: Next<'_>| -> Result<Response> {
            change(&mut request)?;
            Ok(next.run(request))
        });
        let texts: Vec<_> = answers(&client)
            .iter()
            .map(|answer| answer.assert_status(200).text().to_owned())
            .collect();
        assert_eq!(texts, ["tea", "tea", "3", "3", "tea", "tea", "tea", "title"]);
        client.post("/string").send().assert_text("");
    }
    let replaced = client(|mut request: Request, next: Next<'_>| {
        *request.body_mut() = Body::from(Vec::new());
        next.run(request)
    });
    replaced.post("/string").body("tea").send().assert_text("");
}

#[test]
fn middleware_that_looks_for_a_field_reports_a_content_that_was_read() {
    let reads = |mut request: Request, next: Next<'_>| -> Result<Response> {
        request.body_mut().read_to_end(&mut Vec::new())?;
        Ok(next.run(request))
    };
    let form = [("title", "tea"), ("_method", "PUT"), ("_csrf", "x")];
    let overridden = App::new().merge(routes()).with(reads).with(MethodOverride::new()).test();
    overridden.post("/form").form(&form).send().assert_status(500);
    let checked = App::new()
        .merge(routes())
        .with(reads)
        .with(Sessions::in_cookie(Key::generate()))
        .with(Csrf::new())
        .test();
    checked.post("/form").form(&form).send().assert_status(500);
}
