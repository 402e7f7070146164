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

#[test]
fn what_waits_for_a_device_on_the_same_address_is_known() {
    let ip = IpAddr::from([127, 61, 61, 6]);
    let config = HostConfig { addresses: vec![ip], ..HostConfig::default() };
    let (ours, other) = (Host::open(&config).unwrap(), Host::open(&config).unwrap());
    // The other's slot is the second. Nobody drives it: without a queue pair it has no thread.
    let dest_qpn = Qpn::new(2 << 14 | 5);
    let route = route_to(ip, ours.gids()[0].port);
    let empty = ours.backlog(route, dest_qpn).unwrap().expect("the other is on our address");
    assert_eq!(empty.used, 0);
    let packet = [&[0; 4], &dest_qpn.get().to_be_bytes()[..], &[1; 500]].concat();
    std::net::UdpSocket::bind((ip, 0)).unwrap().send_to(&packet, (ip, route.remote_port)).unwrap();
    assert!(ours.backlog(route, dest_qpn).unwrap().unwrap().used > 508);
    drop(other);
    let elsewhere = IpAddr::from([127, 61, 61, 7]);
    assert_eq!(ours.backlog(route_to(elsewhere, 4791), dest_qpn), Ok(None));
}

/// A handler of a signal may poll and post. What commands need is allocated, and what they leave is released, by others.
#[test]
fn a_poll_and_a_post_leave_commands_to_who_waits_for_them() {
    let addresses = vec![IpAddr::from([127, 74, 94, 1])];
    let config = HostConfig { addresses, private_port: Some(14_826), ..HostConfig::default() };
    let host = Host::open(&config).unwrap();
    let shared = &host.owner.shared;
    let cq = host.control(|shard, _| shard.create_cq(4, None)).unwrap().unwrap();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_done = || done.load(std::sync::atomic::Ordering::Acquire);
    let by_command = Arc::clone(&done);
    let command = move |_: &mut Core, _| by_command.store(true, std::sync::atomic::Ordering::Release);
    shared.commands.push(Box::new(command)).unwrap();
    for _ in 0..40 {
        assert_eq!(host.prepare_poll(&cq), Ok(false));
        shared.post(Qpn::new(5));
    }
    assert!(!is_done());
    host.control(|_, _| ()).unwrap();
    assert!(is_done());
}

fn route_to(remote: IpAddr, remote_port: u16) -> Route {
    Route {
        link: userdma_mem::LinkId(0),
        local: remote,
        remote,
        scope_id: 0,
        socket: 0,
        local_port: 0,
        remote_port,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// The parent closes its device and opens it again, while a child is there that was forked meanwhile.
#[test]
#[allow(unsafe_code)]
fn a_forked_child_does_not_keep_its_parents_address() {
    let addresses = vec![IpAddr::from([127, 0, 94, 9])];
    let config = HostConfig { addresses, private_port: Some(14_825), ..HostConfig::default() };
    let host = Host::open(&config).unwrap();
    // SAFETY: the child stops, and does nothing else; the parent waits until it has.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }
    // SAFETY: as above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WUNTRACED) };
    drop(host);
    let again = Host::open(&config);
    // SAFETY: ends the child of above, and waits for that.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(again.is_ok(), "{again:?}");
}
