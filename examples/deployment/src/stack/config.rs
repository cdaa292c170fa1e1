//! The configuration of what is not ours.

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

/// A connection that cannot be made is tried again, on the other instance at last: nothing was sent
/// on it. A request that was sent is not repeated, because it may have been executed.
pub(super) fn haproxy(address: SocketAddr, instances: [SocketAddr; 2]) -> String {
    let [first, second] = instances;
    let interval = CHECK_INTERVAL.as_millis();
    format!(
        "\
defaults
    mode http
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
