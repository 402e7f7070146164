//! A network of the test's own, with interfaces whose other end the test holds.

use std::ffi::{c_char, c_short};
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Runs `test` in a thread that has a network of its own, or says that it is skipped if that takes a
/// privilege that is not there.
pub(crate) fn in_own_network(test: impl FnOnce(&Network) + Send + 'static) {
    let thread = thread::spawn(move || {
        // SAFETY: takes a number; affects this thread only, which ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("SKIPPED: no network of its own without privilege: {}", io::Error::last_os_error());
            return;
        }
        test(&Network { v4: socket(libc::AF_INET), v6: socket(libc::AF_INET6) });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Sets up interfaces. IPv6 may be missing.
pub(crate) struct Network {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

/// The other end of an interface: what goes out there is read here.
pub(crate) struct Wire(File);

/// `struct in6_ifreq`.
#[repr(C)]
struct In6Request {
    addr: [u8; 16],
    prefix_len: u32,
    index: i32,
}

impl Network {
    pub(crate) fn bring_up(&self, name: &str, mtu: i32) {
        let mut request = request(name);
        request.ifr_ifru.ifru_mtu = mtu;
        self.ioctl(libc::SIOCSIFMTU, &mut request);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as c_short;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request);
    }

    /// Makes an interface whose packets begin with the IP header; `None`, and a line, if there is no such device.
    pub(crate) fn tun(&self, name: &str) -> Option<Wire> {
        self.wire(name, libc::IFF_TUN)
    }

    /// Makes an interface with Ethernet packets; `None`, and a line, if there is no such device.
    pub(crate) fn tap(&self, name: &str) -> Option<Wire> {
        self.wire(name, libc::IFF_TAP)
    }

    fn wire(&self, name: &str, kind: i32) -> Option<Wire> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = match options.open("/dev/net/tun") {
            Ok(file) => file,
            Err(error) => {
                eprintln!("SKIPPED: no /dev/net/tun: {error}");
                return None;
            }
        };
        let mut request = request(name);
        request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as c_short;
        ioctl(&file, libc::TUNSETIFF, &mut request);
        Some(Wire(file))
    }

    /// Gives an interface an address with a /24 around it.
    pub(crate) fn add_v4(&self, name: &str, ip: Ipv4Addr) {
        for (what, value) in
            [(libc::SIOCSIFADDR, ip), (libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0))]
        {
            let mut request = request(name);
            request.ifr_ifru.ifru_addr = sockaddr(value);
            self.ioctl(what, &mut request);
        }
    }

    /// Gives an interface an address with a /64 around it; whether that worked.
    pub(crate) fn add_v6(&self, name: &str, ip: Ipv6Addr) -> bool {
        let Some(socket) = &self.v6 else { return false };
        let mut named = request(name);
        self.ioctl(libc::SIOCGIFINDEX, &mut named);
        // SAFETY: the call before wrote the index.
        let index = unsafe { named.ifr_ifru.ifru_ifindex };
        let mut request = In6Request { addr: ip.octets(), prefix_len: 64, index };
        // SAFETY: the kernel reads the structure that this request takes, which outlives the call.
        let added = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw mut request) == 0 };
        // The kernel uses the address once it has convinced itself that nobody else does, which happens elsewhere.
        for _ in 0..1000 {
            let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
            let of_name = |line: &&str| line.ends_with(&format!(" {name}"));
            let is_tentative = |line: &str| {
                let flags = line.split_ascii_whitespace().nth(4);
                flags
                    .and_then(|flags| u32::from_str_radix(flags, 16).ok())
                    .is_none_or(|flags| flags & 0x40 != 0)
            };
            if !table.lines().filter(of_name).any(is_tentative) {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        added
    }

    /// Tells the hardware address of a neighbour, so that packets for it go out.
    pub(crate) fn add_neighbour(&self, name: &str, ip: Ipv4Addr) {
        const ATF_COM: i32 = 2;
        // SAFETY: plain numbers and bytes: all zero is a value.
        let mut request: libc::arpreq = unsafe { std::mem::zeroed() };
        request.arp_pa = sockaddr(ip);
        request.arp_ha.sa_family = libc::ARPHRD_ETHER;
        request.arp_ha.sa_data[0] = 2;
        request.arp_flags = ATF_COM;
        for (to, from) in request.arp_dev.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        ioctl(self.v4.as_ref().unwrap(), libc::SIOCSARP, &mut request);
    }

    fn ioctl(&self, what: libc::Ioctl, request: &mut libc::ifreq) {
        ioctl(self.v4.as_ref().unwrap(), what, request);
    }
}

impl Wire {
    /// The next packet that went out by this interface; waits for it, ten seconds at most.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        if poll(&mut fds, Some(&limit)).unwrap() == 0 {
            return None;
        }
        self.waiting()
    }

    /// The next packet that went out and has not been read.
    pub(crate) fn waiting(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1 << 16];
        let len = self.0.read(&mut bytes).ok()?;
        bytes.truncate(len);
        Some(bytes)
    }
}

fn ioctl<T>(fd: &impl AsRawFd, what: libc::Ioctl, request: &mut T) {
    // SAFETY: each caller passes the structure that its request takes, and it outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), what, std::ptr::from_mut(request)) };
    assert_eq!(result, 0, "ioctl {what:#x}: {}", io::Error::last_os_error());
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: plain numbers and bytes: all zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

fn sockaddr(ip: Ipv4Addr) -> libc::sockaddr {
    let mut addr = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: [0; 14] };
    for (to, from) in addr.sa_data[2..].iter_mut().zip(ip.octets()) {
        *to = from as c_char;
    }
    addr
}

fn socket(family: i32) -> Option<OwnedFd> {
    // SAFETY: takes numbers only; the new descriptor belongs to nobody else.
    unsafe {
        match libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) {
            -1 => None,
            fd => Some(OwnedFd::from_raw_fd(fd)),
        }
    }
}
