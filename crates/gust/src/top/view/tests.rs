//! What is shown, at several sizes.

use expect_test::{Expect, expect};
use unicode_width::UnicodeWidthStr;

use super::super::rates::Rates;
use super::super::snapshot::Limit;
use super::*;

const FIRST: &str = include_str!("../../../tests/it/feed-1.json");
const SECOND: &str = include_str!("../../../tests/it/feed-2.json");

fn snapshot(text: &str) -> Snapshot {
    Snapshot::parse(text.as_bytes()).unwrap()
}

fn view() -> View {
    let mut view = View::new("127.0.0.1:5000".to_owned());
    view.update(snapshot(FIRST));
    view.update(snapshot(SECOND));
    view
}

/// Returns the screen as text. A line in brackets has the focus.
fn screen(view: &mut View, width: usize, height: usize) -> String {
    let lines = view.screen(width, height);
    assert!(lines.len() <= height, "{} lines", lines.len());
    let mut text = String::new();
    for line in lines {
        let columns: usize = line.iter().map(|cell| cell.text.width()).sum();
        assert!(columns <= width, "{columns} columns: {line:?}");
        for cell in line {
            match cell.look {
                Look::Focus => text.push_str(&format!("[{}]", cell.text)),
                _ => text.push_str(&cell.text),
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

#[track_caller]
fn check(view: &mut View, (width, height): (usize, usize), expected: &Expect) {
    expected.assert_eq(&screen(view, width, height));
}

#[test]
fn a_usual_terminal_shows_everything_that_matters() {
    check(
        &mut view(),
        (80, 24),
        &expect![[r#"
            serving  up 1 h 2 min  2,500 requests/s  4 active  2 waiting
            connections 10 of 65,536, 7 idle  threads 3 busy of 9, 512 for handlers
            memory 1.00 MiB of 1.00 GiB, process 42.0 MiB
            limits  threads 82 %  memory 0 %  connections 0 %  streams -
            checks  queue late for 5 s  (its thread sleeps) …
            loops  filoplume-1: 6 open, 4 idle  filoplume-7: 4 open, 3 idle, handed over … …
            ended  deadline: first byte 7
            refused  overloaded 4
            running calls
               TIME RUNS ROUTE                      ITS THREAD
             4.12 s pool GET /orders/{id}           reads from a socket with 10.0.0.5:5432
             712 ms loop GET /report                computes
            1.50 ms pool -
            [routes]
            ROUTE                                 REQ/S      P99    WAIT    COMP  ERR/S RUNS
            GET /users/{id}                       2,000  2.50 ms    0.50    0.25   0.00 loop
            GET /orders/{id}                        300   480 ms    3.75    0.01   3.00 pool
            GET /report                             200   1.25 s    0.00    0.75   0.00 loop
            POST /a/rather/long/pattern/with/…     0.00        -       -       -      - -
            slow, failed and refused requests  1 to 2 of 3
                AGO KIND    STORY
                3 s slow    GET /report: 200 after 1.2s (computing 1.2s)
              2 min failed  GET /orders/{id}: 500 after 4.81s (waiting 4.79s)
            q quit  ? help  tab list  jk scroll  sort: r requests  p p99  w waiting  c comp…
        "#]],
    );
}

#[test]
fn a_narrow_terminal_leaves_out_columns() {
    check(
        &mut view(),
        (40, 20),
        &expect![[r#"
            serving  up 1 h 2 min  2,500 requests/s
            4 active  2 waiting
            connections 10 of 65,536, 7 idle
            threads 3 busy of 9, 512 for handlers …
            limits  threads 82 %  memory 0 % …
            checks  queue late for 5 s …
            loops  filoplume-1: 6 open, 4 idle …
            ended  deadline: first byte 7
            refused  overloaded 4
            running calls  3
            [routes]
            ROUTE                     REQ/S      P99
            GET /users/{id}           2,000  2.50 ms
            GET /orders/{id}            300   480 ms
            GET /report                 200   1.25 s
            POST /a/rather/long/p…     0.00        -
            slow, failed and refused requests  3


            q quit  ? help  tab list  jk scroll  so…
        "#]],
    );
}

#[test]
fn a_wide_terminal_shows_all_columns() {
    check(
        &mut view(),
        (140, 30),
        &expect![[r#"
            serving  up 1 h 2 min  2,500 requests/s  4 active  2 waiting  connections 10 of 65,536, 7 idle  threads 3 busy of 9, 512 for handlers
            memory 1.00 MiB of 1.00 GiB, process 42.0 MiB
            limits  threads 82 %  memory 0 %  connections 0 %  streams -
            checks  queue late for 5 s  (its thread sleeps)  mail failed (optional) for 2 min 10 s  (connection\u{1b} refused)  database passed
            loops  filoplume-1: 6 open, 4 idle  filoplume-7: 4 open, 3 idle, handed over 2x  -: 0 open, 0 idle
            ended  deadline: first byte 7
            refused  overloaded 4
            running calls
               TIME RUNS ROUTE                                 ITS THREAD                                               REQUEST          THREAD
             4.12 s pool GET /orders/{id}                      reads from a socket with 10.0.0.5:5432                   4f1c0d6e         filoplume-4
             712 ms loop GET /report                           computes                                                 -                filoplume-2
            1.50 ms pool -                                                                                              -                -
            [routes]
            ROUTE                                                  REQ/S      P99   MEDIAN    WAIT    COMP  ERR/S ACTIVE RUNS WHY
            GET /users/{id}                                        2,000  2.50 ms   100 µs    0.50    0.25   0.00      0 loop not seen to wait
            GET /orders/{id}                                         300   480 ms  12.5 ms    3.75    0.01   3.00      1 pool waited for 12ms
            GET /report                                              200   1.25 s  1.50 ms    0.00    0.75   0.00      1 loop -
            POST /a/rather/long/pattern/with/{several}/{captur…     0.00        -        -       -       -      -      0 -    -
            slow, failed and refused requests
                AGO KIND    STORY                                                                                                       REQUEST
                3 s slow    GET /report: 200 after 1.2s (computing 1.2s)                                                                91aa
              2 min failed  GET /orders/{id}: 500 after 4.81s (waiting 4.79s)                                                           -
                3 h refused GET /x: 503 \u{1b}[31m(queue 1.2s)\u{202e}, refused\u{d}\u{a}                                               -






            q quit  ? help  tab list  jk scroll  sort: r requests  p p99  w waiting  c computing
        "#]],
    );
}

#[test]
fn plain_text_has_everything_uncut() {
    expect![[r#"
        serving  up 1 h 2 min  2,500 requests/s  4 active  2 waiting  connections 10 of 65,536, 7 idle  threads 3 busy of 9, 512 for handlers  memory 1.00 MiB of 1.00 GiB, process 42.0 MiB
        limits  threads 82 %  memory 0 %  connections 0 %  streams -
        checks  queue late for 5 s  (its thread sleeps)  mail failed (optional) for 2 min 10 s  (connection\u{1b} refused)  database passed
        loops  filoplume-1: 6 open, 4 idle  filoplume-7: 4 open, 3 idle, handed over 2x  -: 0 open, 0 idle
        ended  deadline: first byte 7
        refused  overloaded 4

        running calls
           TIME RUNS ROUTE            ITS THREAD                             REQUEST  THREAD
         4.12 s pool GET /orders/{id} reads from a socket with 10.0.0.5:5432 4f1c0d6e filoplume-4
         712 ms loop GET /report      computes                               -        filoplume-2
        1.50 ms pool -                                                       -        -

        routes
        ROUTE                                                          REQ/S      P99   MEDIAN    WAIT    COMP  ERR/S ACTIVE RUNS WHY
        GET /users/{id}                                                2,000  2.50 ms   100 µs    0.50    0.25   0.00      0 loop not seen to wait
        GET /orders/{id}                                                 300   480 ms  12.5 ms    3.75    0.01   3.00      1 pool waited for 12ms
        GET /report                                                      200   1.25 s  1.50 ms    0.00    0.75   0.00      1 loop -
        POST /a/rather/long/pattern/with/{several}/{captures}/in/it     0.00        -        -       -       -      -      0 -    -

        slow, failed and refused requests
            AGO KIND    STORY                                                         REQUEST
            3 s slow    GET /report: 200 after 1.2s (computing 1.2s)                  91aa
          2 min failed  GET /orders/{id}: 500 after 4.81s (waiting 4.79s)             -
            3 h refused GET /x: 503 \u{1b}[31m(queue 1.2s)\u{202e}, refused\u{d}\u{a} -
    "#]].assert_eq(&view().text());
}

#[test]
fn any_size_is_a_screen() {
    for width in [0, 1, 2, 3, 10, 39, 81, 1000] {
        for height in [0, 1, 2, 3, 7, 100] {
            let mut view = view();
            for action in [Action::Help, Action::Help, Action::NextPane, Action::Scroll(5)] {
                screen(&mut view, width, height);
                view.act(action);
            }
        }
    }
}

fn routes(view: &mut View) -> Vec<String> {
    let text = screen(view, 140, 40);
    let rows = text.lines().skip_while(|line| !line.contains("routes")).skip(2);
    let patterns = rows.take_while(|line| line.starts_with("GET") || line.starts_with("POST"));
    patterns.map(|line| line.split_whitespace().nth(1).unwrap().chars().take(9).collect()).collect()
}

#[test]
fn routes_are_sorted_by_the_key_that_was_pressed() {
    let mut view = view();
    for (sort, expected) in [
        (Sort::Requests, ["/users/{i", "/orders/{", "/report", "/a/rather"]),
        (Sort::P99, ["/report", "/orders/{", "/users/{i", "/a/rather"]),
        (Sort::Waiting, ["/orders/{", "/users/{i", "/report", "/a/rather"]),
        (Sort::Computing, ["/report", "/users/{i", "/orders/{", "/a/rather"]),
    ] {
        view.act(Action::Sort(sort));
        assert_eq!(routes(&mut view), expected, "{sort:?}");
    }
}

#[test]
fn one_snapshot_has_no_rates_but_an_order() {
    let mut view = View::new(String::new());
    view.update(snapshot(FIRST));
    assert_eq!(routes(&mut view), ["/users/{i", "/orders/{", "/report", "/a/rather"]);
    assert!(screen(&mut view, 80, 24).contains(" - requests/s"));
}

#[test]
fn a_server_that_was_started_again_has_no_rates_at_first() {
    let mut view = view();
    let mut restarted = snapshot(FIRST);
    restarted.uptime_s = Some(0.5);
    restarted.requests.total = Some(3.0);
    view.update(restarted.clone());
    assert!(screen(&mut view, 80, 24).contains(" - requests/s"));
    restarted.uptime_s = Some(1.5);
    restarted.requests.total = Some(13.0);
    view.update(restarted);
    assert!(screen(&mut view, 80, 24).contains(" 10.00 requests/s"), "the next one has them");
}

#[test]
fn without_rates_the_totals_decide_the_order() {
    let mut snapshot = snapshot(FIRST);
    for (route, total) in snapshot.routes.iter_mut().zip([Some(1.0), Some(7.0), None, Some(3.0)]) {
        route.requests = total;
    }
    let routes = snapshot.routes.iter().map(|route| (route, Rates::default())).collect();
    let totals: Vec<_> =
        rows::sorted(routes, Sort::Requests).into_iter().map(|(route, _)| route.requests).collect();
    assert_eq!(totals[..3], [Some(7.0), Some(3.0), Some(1.0)]);
}

#[test]
fn limits_that_are_nearly_full_or_full_are_conspicuous() {
    let mut now = snapshot(r#"{"version": 1}"#);
    let limit = |used: f64| Limit { used: Some(used), max: Some(100.0), ..Limit::default() };
    now.limits = [79.0, 80.0, 94.0, 95.0, 100.0].map(limit).into();
    let looks: Vec<_> = rows::limits(&now).into_iter().map(|cell| cell.look).collect();
    let (full, nearly) = (Look::Bad, Look::Warning);
    assert_eq!(looks, [full, full, nearly, nearly, Look::Plain], "the fullest first");
}

/// A console sends a snapshot at once to a new viewer, and others to all.
#[test]
fn rates_are_not_computed_over_a_moment() {
    let mut view = View::new(String::new());
    let mut at = |seconds: f64, requests: f64| {
        let mut snapshot = snapshot(FIRST);
        snapshot.uptime_s = Some(seconds);
        snapshot.requests.total = Some(requests);
        view.update(snapshot);
        let text = screen(&mut view, 80, 24);
        let (rate, _) = text.split_once(" requests/s").unwrap();
        rate.rsplit_once("  ").unwrap().1.to_owned()
    };
    assert_eq!(at(10.0, 0.0), "-");
    assert_eq!(at(10.01, 100.0), "-");
    assert_eq!(at(11.01, 200.0), "100");
    // This rate is over the time from 10.01, not from 11.01, and the next one from 11.02.
    assert_eq!(at(11.02, 1110.0), "1,000");
    assert_eq!(at(11.6, 1200.0), "155");
}

#[test]
fn the_focused_list_scrolls_and_stops_at_its_ends() {
    let mut many = snapshot(SECOND);
    let story = many.stories[0].clone();
    many.stories = vec![story; 50];
    let mut view = view();
    view.update(many);
    view.act(Action::NextPane);
    let says = |view: &mut View, part: &str| {
        let text = screen(view, 80, 30);
        assert!(text.contains(part), "{part}: {text}");
    };
    says(&mut view, "[slow, failed and refused requests]  1 to ");
    view.act(Action::Scroll(1));
    says(&mut view, "requests]  2 to ");
    view.act(Action::Scroll(-5));
    says(&mut view, "requests]  1 to ");
    view.act(Action::ScrollToEnd { is_last: true });
    says(&mut view, "to 50 of 50");
    view.act(Action::Scroll(-1));
    says(&mut view, "to 49 of 50");
}

#[test]
fn trouble_is_shown_above_the_last_snapshot_until_the_next_one() {
    let mut view = view();
    view.trouble("the server has closed the connection".to_owned());
    let text = screen(&mut view, 80, 24);
    assert!(text.starts_with("the server has closed the connection; trying again\n"), "{text}");
    assert!(text.contains("GET /report"));
    view.update(snapshot(SECOND));
    assert!(!screen(&mut view, 80, 24).contains("trying again"));
}

#[test]
fn the_first_snapshot_is_waited_for() {
    let mut view = View::new("127.0.0.1:5000".to_owned());
    assert_eq!(screen(&mut view, 80, 24), "connecting to 127.0.0.1:5000\n");
}

#[test]
fn nothing_of_the_server_steers_the_terminal() {
    for text in [screen(&mut view(), 140, 40), view().text()] {
        assert!(!text.chars().any(|it| it.is_control() && it != '\n'), "{text:?}");
        assert!(text.contains(r"503 \u{1b}[31m(queue 1.2s)\u{202e}, refused"), "{text}");
    }
}

#[test]
fn the_page_of_help_fits_a_usual_terminal() {
    let mut view = view();
    view.act(Action::Help);
    let text = screen(&mut view, 80, 24);
    assert!(text.contains("RUNS") && text.contains("quit"), "{text}");
    // Any key leaves the help.
    view.act(Action::Sort(Sort::P99));
    assert!(screen(&mut view, 80, 24).contains("[routes]"));
    assert_eq!(view.sort, Sort::Requests);
}

#[test]
fn values_that_cannot_be_are_unknown() {
    let mut odd = snapshot(SECOND);
    odd.uptime_s = Some(f64::INFINITY);
    odd.memory.used = Some(-5.0);
    odd.connections.open = Some(1e300);
    odd.calls[0].running_ms = Some(f64::NAN);
    let mut view = view();
    view.update(odd);
    let text = screen(&mut view, 140, 40);
    assert!(text.contains("up -") && text.contains("memory - of"), "{text}");
}

#[test]
fn what_idle_connections_wait_for_is_shown() {
    let mut view = View::new("127.0.0.1:5000".to_owned());
    let waits =
        r#"{"waits_for": "first byte", "count": 1400}, {"waits_for": "content", "count": 7}"#;
    view.update(snapshot(&format!(r#"{{"version": 1, "idle": [{waits}]}}"#)));
    let screen = screen(&mut view, 80, 24);
    assert!(screen.contains("\nidle  first byte 1,400  content 7\n"), "{screen}");
}
