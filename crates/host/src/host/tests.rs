//! What a configuration comes to.

use std::net::IpAddr;

use super::*;

#[test]
fn a_receive_buffer_has_the_size_that_was_asked_for() {
    const WANTED: usize = 50_000; // Below every system's limit.
    let config = HostConfig {
        addresses: vec![IpAddr::from([127, 0, 24, 1])],
        private_port: Some(14_824),
        recv_buffer: Some(WANTED),
        ..HostConfig::default()
    };
    let host = Host::open(&config).unwrap();
    for socket in &host.owner.shared.sockets {
        // The kernel counts its overhead, and tells twice what it was asked for.
        assert_eq!(rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap(), 2 * WANTED);
    }
}
