//! The configuration of the programs that are not ours.

use std::net::SocketAddr;

use super::{CHECK_INTERVAL, FALL};

/// A server that does not answer fails a query instead of holding its thread and connection: two
/// seconds to connect, ten per statement.
pub(super) fn database_url(address: SocketAddr) -> String {
    format!(
        "postgres://app@{address}/postgres?connect_timeout=2&tcp_user_timeout=5000\
         &options=-c%20statement_timeout%3D10s%20-c%20idle_in_transaction_session_timeout%3D30s"
    )
}

const NEW_TRACE: &str = "00-%[uuid,regsub(-,,g)]-%[uuid,regsub(-,,g),regsub(^.{16},)]-01";

/// The fields of haproxy's log, which docs/guide/operating.md counts. The path is the last one,
/// because clients choose it. The query is left out.
pub const LOG_FORMAT: &str = "%tr client=%ci server=%s status=%ST queue_ms=%Tw connect_ms=%Tc \
                          answer_ms=%Tr total_ms=%Ta end=%ts trace_id=%[var(txn.trace_id)] %HM \
                          %{+Q}HP";

/// A connection that cannot be made is tried again, the last time to the other instance. That is
/// safe, because nothing was sent on it. A request that was sent is not repeated, because it may
/// have been executed.
///
/// Each request gets a `traceparent` (W3C Trace Context), unless the client sends a valid one. Its
/// trace ID is in every line of the log.
pub(super) fn haproxy(address: SocketAddr, instances: [SocketAddr; 2]) -> String {
    let [first, second] = instances;
    let interval = CHECK_INTERVAL.as_millis();
    format!(
        "\
global
    log stdout len 2048 format raw local0

defaults
    mode http
    log global
    option forwardfor
    option redispatch
    retries 3
    timeout connect 2s
    timeout client  60s
    timeout server  60s
    timeout queue   5s

frontend all
    bind {address}
    # For Prometheus, which asks the instances themselves.
    http-request deny if {{ path /metrics }}

    acl has_trace req.fhdr_cnt(traceparent) eq 1
    acl has_trace_id req.fhdr(traceparent) -m reg ^00-[0-9a-f]{{32}}-[0-9a-f]{{16}}-[0-9a-f]{{2}}$
    acl has_zero_id req.fhdr(traceparent) -m reg -- -(0{{32}}|0{{16}})-
    http-request set-var(txn.has_trace) bool(true) if has_trace has_trace_id !has_zero_id
    http-request del-header tracestate unless {{ var(txn.has_trace) -m bool }}
    # 32 and 16 digits of random UUIDs, of which neither part can be zero.
    http-request set-header traceparent {NEW_TRACE} unless {{ var(txn.has_trace) -m bool }}
    http-request set-var(txn.trace_id) req.fhdr(traceparent),field(2,-)
    log-format '{LOG_FORMAT}'
    default_backend app

backend app
    balance roundrobin
    option httpchk GET /ready
    http-check expect status 200
    default-server check inter {interval}ms fall {FALL} rise 1
    server first {first}
    server second {second}
"
    )
}

pub(super) fn prometheus(instances: [SocketAddr; 2]) -> String {
    let [first, second] = instances;
    format!(
        "\
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: app
    static_configs:
      - targets: ['{first}', '{second}']
"
    )
}
