//! Listening sockets that share one port, and the sockets they accept.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use common::BACKLOG;

/// Listens on a port that several listeners share. The kernel spreads the connections over them.
pub fn bind(address: SocketAddr) -> RawFd {
    let SocketAddr::V4(address) = address else { panic!("only IPv4 is measured") };
    let fd = unsafe {
        libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    };
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR);
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT);
    // Accepted sockets inherit this option, so they need no call of their own.
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY);
    let name = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    };
    let length = mem::size_of_val(&name) as libc::socklen_t;
    check("bind", unsafe { libc::bind(fd, (&raw const name).cast(), length) });
    check("listen", unsafe { libc::listen(fd, i32::from(BACKLOG)) });
    fd
}

/// The next connection, or `None` if there is none, or no descriptor for it.
pub fn accept(listener: RawFd) -> Option<RawFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let fd = unsafe { libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), flags) };
    (fd >= 0).then_some(fd)
}

pub fn close(fd: RawFd) {
    unsafe { libc::close(fd) };
}

fn set(fd: RawFd, level: i32, option: i32) {
    let on: i32 = 1;
    let length = mem::size_of_val(&on) as libc::socklen_t;
    check("setsockopt", unsafe {
        libc::setsockopt(fd, level, option, (&raw const on).cast(), length)
    });
}

fn check(call: &str, result: i32) {
    assert!(result == 0, "{call}: {}", io::Error::last_os_error());
}
