//! The commands of docs/guide/operating.md look at the fields that they mean, whatever clients ask
//! for.

use std::fs;
use std::path::Path;
use std::process::Command;

use deployment::stack::LOG_FORMAT;

/// A path and an agent with which a client wants to be taken for another one, and for a failure.
const PATH: &str = "/client=203.0.113.9,status=503";
const AGENT: &str = r#"client: 203.0.113.9, \",\"client\":\"203.0.113.9\",\""#;

/// Returns a line of haproxy's log.
fn haproxy_line(status: &str) -> String {
    let fields = LOG_FORMAT.split(' ').map(|field| {
        let (name, variable) = field.split_once('%').unwrap();
        let value = match variable {
            "tr" => "29/Nov/2026:12:00:00.000",
            "ci" => "192.0.2.7",
            "ST" => status,
            "ts" => "--",
            "HM" => "GET",
            "{+Q}HP" => return format!("\"{PATH}\""),
            _ => "1",
        };
        format!("{name}{value}")
    });
    fields.collect::<Vec<_>>().join(" ")
}

/// Returns the commands of a question, but those that ask Prometheus.
fn commands(guide: &str, question: u32) -> Vec<&str> {
    let (_, questions) = guide.split_once("\n## Five questions\n").unwrap();
    let (_, commands) = questions.split_once(&format!("\n# {question} ")).unwrap();
    let is_of_it = |line: &&str| !line.starts_with('#') && *line != "```";
    let lines = commands.lines().skip(1).take_while(is_of_it);
    lines.filter(|line| !line.starts_with("ask ")).collect()
}

#[test]
fn clients_cannot_choose_what_the_commands_of_the_guide_count() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(root.join("docs/guide/operating.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &[String]| {
        fs::write(folder.path().join(name), lines.join("\n") + "\n").unwrap();
    };
    write("haproxy.log", &["200", "503", "404"].map(haproxy_line));
    let json = format!(
        "{{\"time\":\"2026-11-29T12:00:00.000Z\",\"method\":\"GET\",\"path\":\"{PATH}\",\
         \"status\":200,\"duration_us\":1,\"client\":\"192.0.2.7\",\"peer\":\"127.0.0.1:1\",\
         \"referer\":\"{AGENT}\",\"user_agent\":\"{AGENT}\"}}"
    );
    let text = format!(
        "2026-11-29T12:00:00.000000Z  INFO filoplume::access: method=\"GET\" path=\"{PATH}\" \
         status=200 duration_us=1 client=192.0.2.7 peer=127.0.0.1:1"
    );
    write("first.log", &[json]);
    write("second.log", &[text]);
    let run = |command: &str| {
        let output = Command::new("sh").args(["-c", command]).current_dir(&folder).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        said.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let [failures] = commands(&guide, 1)[..] else { panic!("one command reads a log") };
    assert_eq!(run(failures), [format!("1 status=503 end=-- GET \"{PATH}\"")], "{failures}");
    let [proxy, app] = commands(&guide, 4)[..] else { panic!("two commands read logs") };
    assert_eq!(run(proxy), ["3 client=192.0.2.7"], "{proxy}");
    let mut clients = run(app);
    clients.sort_unstable();
    let expected = ["1  client=192.0.2.7 peer=", "1 ,\"client\":\"192.0.2.7\""];
    assert_eq!(clients, expected, "{app}");
}
