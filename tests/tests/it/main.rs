//! Tests over sockets, by subject. They share one binary: it is linked once, it builds the examples
//! once, and while one test waits for a deadline others run.
//!
//! A test has a file of its own beside this folder, and so a process of its own, if it measures how
//! long something takes or what a process uses, if it changes the limits of its process, or if its
//! programs listen on addresses that they did not get from the system.

mod abandoned;
mod api;
mod bytes;
mod clients;
mod corpus;
mod event_streams;
mod examples_tcp;
mod fairness;
mod framing;
mod incoming;
mod incomplete;
mod interim_responses;
mod limits;
mod listeners;
mod memory_budget;
mod metrics;
mod permits;
mod pipelining;
mod progress;
mod proxied_clients;
mod proxy;
mod pushed;
mod refusals;
mod responses;
mod saved_contents;
mod server_timing;
mod shutdown;
mod slow_contents;
mod spooled_contents;
mod stopping;
mod stories;
mod streamed_contents;
mod systemd;
mod tcp;
mod tcp_calls;
mod tcp_protocols;
mod tcp_senders;
mod tcp_successors;
mod tls;
mod tls_apps;
mod tls_handshakes;
mod tls_records;
mod together;
mod upgrade;
mod upgrade_to;
mod uploads;
mod websockets;
mod written_bodies;
