//! The app, called in process. Each test has a database of its own.

use filoplume::Key;
use filoplume::testing::{TestClient, TestResponse};
use serde_json::{Value, json};

use crate::store::Store;

struct Site {
    client: TestClient,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("todos.db");
        let store = Store::open(path.to_str().expect("a path of text")).expect("a database");
        let client = crate::app(store, Key::generate()).expect("an app").test();
        Self { client, _folder: folder }
    }

    /// Submits a form as a browser does: gets the page, and sends its form with the token.
    fn submit(&self, page: &str, action: &str, fields: &[(&str, &str)]) -> TestResponse {
        let page = self.client.get(page).send();
        let (_, rest) =
            page.text().split_once("name=\"_csrf\" value=\"").expect("the page has a form");
        let token = rest.split('"').next().expect("a token");
        let fields = [fields, &[("_csrf", token)]].concat();
        self.client.post(action).form(&fields).follow_redirects(2).send()
    }

    fn register(&self, name: &str) -> TestResponse {
        self.submit("/login", "/register", &[("name", name), ("password", "correct horse")])
    }
}

#[test]
fn without_a_session_the_list_redirects_to_sign_in() {
    let site = Site::new();
    site.client.get("/").send().assert_status(303).assert_header("location", "/login");
    site.client.get("/login").send().assert_contains("Sign in");
}

#[test]
fn todos_are_added_done_and_removed() {
    let site = Site::new();
    site.register("ada").assert_status(200).assert_contains("Todos of ada");
    site.submit("/", "/todos", &[("text", "buy <milk>")]).assert_contains("buy &lt;milk&gt;");
    site.submit("/", "/todos/1/done", &[]).assert_contains("class=\"done\"");
    let page = site.submit("/", "/todos/1/undo", &[]);
    assert!(!page.text().contains("class=\"done\""));
    site.submit("/", "/todos/1/remove", &[]).assert_contains("Nothing is to be done.");
    site.submit("/", "/todos/1/remove", &[]).assert_status(404);
    site.submit("/", "/todos", &[("text", " ")]).assert_contains("Say what is to be done.");
}

#[test]
fn passwords_are_checked() {
    let site = Site::new();
    site.register("ada");
    site.submit("/", "/logout", &[]).assert_contains("Sign in");
    let wrong = site.submit("/login", "/login", &[("name", "ada"), ("password", "battery staple")]);
    wrong.assert_contains("There is nobody with this name and password.");
    let right = site.submit("/login", "/login", &[("name", "ada"), ("password", "correct horse")]);
    right.assert_contains("Todos of ada");
    site.submit("/", "/logout", &[]);
    site.register("ada").assert_contains("The name is taken.");
}

#[test]
fn passwords_cannot_be_guessed_quickly() {
    let site = Site::new();
    let guess = |_: &usize| {
        let response = site.submit("/login", "/login", &[("name", "ada"), ("password", "guess")]);
        response.status() == 429
    };
    let refused = (0..40).filter(guess).count();
    assert!((1..=10).contains(&refused), "{refused} of 40 were refused");
}

#[test]
fn forms_without_the_token_are_refused() {
    let site = Site::new();
    site.register("ada");
    site.client.post("/todos").form(&[("text", "forged")]).send().assert_status(403);
    assert!(!site.client.get("/").send().text().contains("forged"));
}

#[test]
fn users_cannot_change_the_todos_of_others() {
    let site = Site::new();
    site.register("ada");
    site.submit("/", "/todos", &[("text", "hers")]);
    site.client.clear_cookies();
    site.register("bob").assert_contains("Nothing is to be done.");
    site.submit("/", "/todos/1/done", &[]).assert_status(404);
    site.submit("/", "/todos/1/remove", &[]).assert_status(404);
}

#[test]
fn programs_have_an_api() {
    let site = Site::new();
    site.register("ada");
    let client = site.client;
    client.clear_cookies();
    client
        .get("/api/todos")
        .send()
        .assert_status(401)
        .assert_header("www-authenticate", "Basic realm=\"todos\", charset=\"UTF-8\"");
    client.get("/api/todos").basic("ada", "wrong").send().assert_status(401);
    let ask =
        |request: filoplume::testing::TestRequest<'_>| request.basic("ada", "correct horse").send();
    let added = ask(client.post("/api/todos").json(&json!({"text": "call Bob"})));
    added.assert_status(201).assert_json(&json!({"id": 1, "text": "call Bob", "is_done": false}));
    ask(client.patch("/api/todos/1").json(&json!({"is_done": true}))).assert_status(204);
    assert_eq!(ask(client.get("/api/todos")).json::<Value>()[0]["is_done"], json!(true));
    ask(client.patch("/api/todos/1").json(&json!({"is_done": "yes"}))).assert_status(422);
    ask(client.post("/api/todos").json(&json!({"text": ""})))
        .assert_status(422)
        .assert_contains("\"field\":\"text\"");
    ask(client.delete("/api/todos/1")).assert_status(204);
    ask(client.delete("/api/todos/1")).assert_status(404);
}
