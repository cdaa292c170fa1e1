//! The report as CSV: a line of names and a line of values. Times are in microseconds.

use crate::histogram::{Latency, PERCENTILES};
use crate::run::Run;

/// The columns of the report, each with its name and its value.
#[derive(Default)]
struct Columns(Vec<(String, String)>);

pub(crate) fn write(run: &Run) -> String {
    let mut columns = Columns::default();
    columns.add_load(run);
    columns.add_failures(run);
    columns.add_connections(run);
    columns.add_latency("", Some(&run.latency));
    columns.add_latency("uncorrected_", run.uncorrected.as_ref());
    columns.add_cpu(run);
    columns.add("error_share", format!("{:.6}", run.error_share()));
    columns.text()
}

impl Columns {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    fn add_load(&mut self, run: &Run) {
        self.add("target", quoted(&run.target));
        self.add("connections", run.load.connections.to_string());
        self.add("threads", run.load.threads.to_string());
        self.add("pipeline", run.load.depth.to_string());
        self.add("rate", run.load.rate.map_or(String::new(), |rate| rate.to_string()));
        self.add("seconds", format!("{:.3}", run.seconds));
        self.add("requests", run.requests.to_string());
        self.add("responses", run.responses.to_string());
        self.add("requests_per_second", format!("{:.2}", run.per_second()));
    }

    fn add_failures(&mut self, run: &Run) {
        self.add("unanswered", (run.unanswered + run.never_sent).to_string());
        for (name, count) in run.errors.named() {
            self.add(&format!("errors_{}", name.replace(' ', "_")), count.to_string());
        }
        for class in 1..=5 {
            let count: u64 = run
                .statuses
                .iter()
                .filter(|(status, _)| **status / 100 == class)
                .map(|(_, count)| count)
                .sum();
            self.add(&format!("status_{class}xx"), count.to_string());
        }
    }

    fn add_connections(&mut self, run: &Run) {
        self.add("bytes_sent", run.bytes_sent.to_string());
        self.add("bytes_received", run.bytes_received.to_string());
        self.add("opened", run.connections.opened.to_string());
        self.add("never_served", run.connections.never_served.to_string());
        self.add("held", run.connections.held.map_or(String::new(), |held| held.to_string()));
        self.add("reopened", run.connections.reopened.to_string());
        self.add("least_each", run.connections.least.to_string());
        self.add("median_each", run.connections.median.to_string());
        self.add("most_each", run.connections.most.to_string());
        self.add("connect_p50_us", micros(run.connect.at(50.0)));
        let handshakes = run.handshakes.unwrap_or_default();
        self.add("tls_handshakes_full", handshakes.full.to_string());
        self.add("tls_handshakes_resumed", handshakes.resumed.to_string());
    }

    /// Adds the columns of a latency. If it was not measured, they are empty.
    fn add_latency(&mut self, prefix: &str, latency: Option<&Latency>) {
        let mut time = |name: &str, value: Option<f64>| {
            self.add(&format!("{prefix}{name}_us"), value.map_or(String::new(), micros));
        };
        time("min", latency.map(|latency| latency.min));
        time("mean", latency.map(|latency| latency.mean));
        for percentile in PERCENTILES {
            time(&format!("p{percentile}"), latency.map(|latency| latency.at(percentile)));
        }
        time("max", latency.map(|latency| latency.max));
    }

    fn add_cpu(&mut self, run: &Run) {
        let share = |seconds: f64| format!("{:.4}", run.per_response(seconds));
        let of_server = |seconds: Option<f64>| seconds.map_or(String::new(), share);
        self.add("client_user_us_per_request", share(run.client.cpu.user));
        self.add("client_system_us_per_request", share(run.client.cpu.system));
        self.add("client_busiest_thread", format!("{:.3}", run.client.busiest));
        self.add("server_user_us_per_request", of_server(run.server.map(|cpu| cpu.user)));
        self.add("server_system_us_per_request", of_server(run.server.map(|cpu| cpu.system)));
    }

    fn text(&self) -> String {
        let line = |cells: Vec<&str>| cells.join(",") + "\n";
        line(self.0.iter().map(|(name, _)| name.as_str()).collect())
            + &line(self.0.iter().map(|(_, value)| value.as_str()).collect())
    }
}

fn micros(nanos: f64) -> String {
    format!("{:.3}", nanos / 1e3)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::sample;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of columns")]
    fn every_name_has_a_value() {
        let text = write(&sample::run());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines.len(), lines[0].len()), (2, lines[1].len()));
        let pairs: Vec<_> = lines[0]
            .iter()
            .zip(&lines[1])
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        expect![[r#"
            target="http://127.0.0.1:8080/plain?a=<b>&c"
            connections=64
            threads=2
            pipeline=1
            rate=20000
            seconds=4.000
            requests=80000
            responses=79900
            requests_per_second=19975.00
            unanswered=42
            errors_connect=0
            errors_reset=3
            errors_closed_early=0
            errors_timeout=55
            errors_malformed=0
            errors_unsolicited=0
            errors_status=2
            errors_mismatch=0
            status_1xx=0
            status_2xx=79898
            status_3xx=0
            status_4xx=0
            status_5xx=2
            bytes_sent=3760000
            bytes_received=10387000
            opened=64
            never_served=1
            held=
            reopened=5
            least_each=0
            median_each=1250
            most_each=1300
            connect_p50_us=2600.959
            tls_handshakes_full=16
            tls_handshakes_resumed=48
            min_us=99.968
            mean_us=33438.381
            p50_us=25100.287
            p75_us=56360.959
            p90_us=81133.567
            p95_us=90374.143
            p99_us=98172.927
            p99.9_us=99942.399
            p99.99_us=100100.000
            max_us=100100.000
            uncorrected_min_us=99.968
            uncorrected_mean_us=16769.177
            uncorrected_p50_us=12607.487
            uncorrected_p75_us=28229.631
            uncorrected_p90_us=40632.319
            uncorrected_p95_us=45252.607
            uncorrected_p99_us=49119.231
            uncorrected_p99.9_us=50036.735
            uncorrected_p99.99_us=50100.000
            uncorrected_max_us=50100.000
            client_user_us_per_request=0.2503
            client_system_us_per_request=3.7547
            client_busiest_thread=0.420
            server_user_us_per_request=1.2516
            server_system_us_per_request=5.0063
            error_share=0.000750
        "#]]
        .assert_eq(&pairs.concat());
    }

    #[test]
    fn errors_without_a_request_are_a_share_of_one() {
        let mut run = sample::run();
        run.requests = 0;
        run.errors.connect = 5000;
        assert!(write(&run).ends_with(",1.000000\n"), "{}", write(&run));
    }

    #[test]
    fn a_quote_is_doubled() {
        assert_eq!(quoted("a\"b,c"), "\"a\"\"b,c\"");
    }
}
