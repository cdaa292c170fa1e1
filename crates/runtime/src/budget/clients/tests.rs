//! Tests of what counts for clients.

use super::*;
use crate::budget::counts::CAPACITY_KEPT;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_client_may_open_its_maximum_of_connections_and_reopen_closed_ones() {
    let clients = Arc::new(Clients::new(2));
    let one = address("192.0.2.1");
    let first = clients.admit(one).unwrap();
    let second = clients.admit(one).unwrap();
    assert_eq!(clients.admit(one).unwrap_err(), AtLimit);
    assert!(clients.admit(address("192.0.2.2")).is_ok(), "another client is not affected");
    drop(first);
    let third = clients.admit(one).unwrap();
    assert!(third.is_some());
    assert_eq!(clients.admit(one).unwrap_err(), AtLimit);
    drop((second, third));
    assert!(clients.counts.lock().is_empty(), "a client without a connection has no entry");
}

#[test]
fn an_ipv6_network_of_48_bits_has_a_bound_of_its_own() {
    // The bound is four times a configured number. By default, it is three quarters of all
    // connections.
    for (clients, network_max) in [(Clients::new(2), 8), (Clients::public(8), 12)] {
        let clients = Arc::new(clients);
        let subnet = |subnet: usize| address(&format!("2001:db8:0:{subnet:x}::1"));
        let mut open: Vec<_> =
            (0..network_max).map(|n| clients.admit(subnet(n)).unwrap().unwrap()).collect();
        assert_eq!(clients.admit(subnet(network_max)).unwrap_err(), AtLimit);
        assert_eq!(clients.counts.lock().len(), network_max, "a refused one has no entry");
        assert_eq!(open[0].connections(), network_max);
        assert!(clients.admit(address("2001:db8:1::1")).is_ok(), "another network");
        open.pop();
        assert!(clients.admit(subnet(network_max)).is_ok());
    }
}

#[test]
fn what_a_proxy_holds_for_a_client_counts_beside_its_own_and_its_connections_do_not() {
    let clients = Arc::new(Clients::public(1));
    let one = address("192.0.2.1");
    let acting: Vec<_> = (0..10).filter_map(|_| clients.act_for(one)).collect();
    assert_eq!(acting.len(), 10);
    let own = clients.admit(one).unwrap().unwrap();
    assert_eq!(clients.admit(one).unwrap_err(), AtLimit);
    assert_eq!((own.connections(), acting[0].connections()), (1, 1));
    let held: Vec<_> = acting.iter().filter_map(|client| client.hold_thread(4)).collect();
    assert!(held.len() == 4 && own.hold_thread(4).is_none());
    assert!(clients.act_for(address("10.0.0.1")).is_none(), "private addresses count for nobody");
    drop((own, acting));
    assert!(clients.act_for(one).unwrap().hold_thread(4).is_none(), "they hold the threads");
    drop(held);
    assert!(clients.counts.lock().is_empty());
}

#[test]
fn a_proxy_may_act_for_more_clients_of_a_network_than_may_connect() {
    let clients = Arc::new(Clients::new(1));
    let subnet = |subnet: usize| address(&format!("2001:db8:0:{subnet:x}::1"));
    let acting: Vec<_> = (0..20).filter_map(|n| clients.act_for(subnet(n))).collect();
    assert_eq!(acting.len(), 20);
    let held: Vec<_> = acting.iter().filter_map(|client| client.hold_thread(2)).collect();
    assert_eq!(held.len(), 4, "twice what a client may hold");
    let own = clients.admit(subnet(1)).unwrap().unwrap();
    assert_eq!(own.connections(), 1);
    drop((acting, held, own));
    assert!(clients.counts.lock().is_empty() && clients.networks.is_empty());
}

#[test]
fn what_a_network_holds_is_known_until_the_last_of_its_clients_has_gone() {
    let clients = Arc::new(Clients::new(1));
    let acting = |subnet: usize| {
        clients.act_for(address(&format!("2001:db8:0:{subnet:x}::1"))).expect("it is counted")
    };
    let (first, second) = (acting(1), acting(2));
    let of_second = [second.hold_thread(2), second.hold_thread(2)];
    drop(first);
    let (third, fourth) = (acting(3), acting(4));
    let of_third = [third.hold_thread(2), third.hold_thread(2)];
    assert!(of_second.iter().chain(&of_third).all(Option::is_some));
    assert!(fourth.hold_thread(2).is_none(), "the network holds four");
}

/// Clients of one network, and one of another.
fn subnets(clients: &Arc<Clients>) -> [Arc<ClientConnection>; 4] {
    ["2001:db8:0:1::", "2001:db8:0:2::", "2001:db8:0:3::", "2001:db8:1::"]
        .map(|client| clients.admit(address(client)).unwrap().unwrap())
}

#[test]
fn an_ipv6_network_of_48_bits_holds_twice_what_a_client_may() {
    type Hold = fn(&Arc<ClientConnection>) -> Option<Box<dyn std::any::Any>>;
    let thread: Hold = |client| Some(Box::new(client.hold_thread(2)?));
    let descriptor: Hold = |client| Some(Box::new(client.hold_descriptor(2)?));
    for hold in [thread, descriptor] {
        let [a, b, c, other] = subnets(&Arc::new(Clients::new(100)));
        let mut of_a = [hold(&a), hold(&a)];
        assert!(of_a.iter().all(Option::is_some) && hold(&a).is_none());
        let of_b = [hold(&b), hold(&b)];
        assert!(of_b.iter().all(Option::is_some) && hold(&c).is_none());
        assert!(hold(&other).is_some(), "another network");
        of_a[0] = None;
        assert!(hold(&c).is_some(), "the refused one is not counted");
    }
}

#[cfg(feature = "spool")]
#[test]
fn contents_of_a_network_in_files_have_twice_the_space_of_a_client() {
    let [a, b, c, other] = subnets(&Arc::new(Clients::new(100)));
    assert!(a.try_spool(10, 10) && !a.try_spool(1, 10));
    assert!(b.try_spool(6, 10) && !c.try_spool(5, 10) && c.try_spool(4, 10));
    assert_eq!([&a, &b, &c, &other].map(|client| client.spooled()), [10, 10, 10, 0]);
    assert!(other.try_spool(10, 10));
    a.release_spooled(10);
    assert_eq!([&a, &b, &c].map(|client| client.spooled()), [5, 6, 5]);
    b.release_spooled(6);
    c.release_spooled(4);
    assert_eq!([&a, &b, &c].map(|client| client.spooled()), [0; 3]);
}

#[test]
fn private_addresses_are_counted_only_if_every_client_is() {
    for (text, is_private) in [
        ("127.0.0.1", true),
        ("10.1.2.3", true),
        ("172.16.0.1", true),
        ("172.32.0.1", false),
        ("192.168.1.1", true),
        ("169.254.1.1", true),
        ("100.63.255.255", false),
        ("100.64.0.1", true),
        ("100.127.255.255", true),
        ("100.128.0.1", false),
        ("192.0.2.1", false),
        ("::ffff:10.1.2.3", true),
        ("::ffff:192.0.2.1", false),
        ("64:ff9b::192.0.2.1", false),
        ("64:ff9b::10.1.2.3", true),
        ("::1", true),
        ("fd00::1", true),
        ("fe80::1", true),
        ("2001:db8::1", false),
    ] {
        let (all, public) = (Arc::new(Clients::new(1)), Arc::new(Clients::public(1)));
        assert!(all.admit(address(text)).unwrap().is_some(), "{text}");
        assert_eq!(public.admit(address(text)).unwrap().is_none(), is_private, "{text}");
    }
}

#[test]
fn the_table_shrinks_after_an_attack_from_many_addresses() {
    let clients = Arc::new(Clients::new(1));
    let connections: Vec<_> =
        (0..20_000_u32).map(|n| clients.admit(IpAddr::V4(n.into())).unwrap()).collect();
    assert_eq!(clients.counts.lock().len(), connections.len());
    drop(connections);
    let counts = clients.counts.lock();
    assert!(counts.is_empty() && counts.capacity() <= CAPACITY_KEPT, "{}", counts.capacity());
}
