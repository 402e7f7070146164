//! Wrong calls: what is refused, in which words, and with which number. `docs/errors.md` quotes these texts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, and its helpers too")]

mod common;

use std::time::Duration;

use common::{ALL, pair};
use userdma::{
    AccessFlags, Arm, BindMwError, CreateCqError, CreateQpError, Device, Endpoint, Errno, Error, Gid,
    HostError, Inline, ModifyQpError, Mr, ObjectError, QpAttr, QpAttrMask, QpState, RegMrError, RtrAttr,
    RtsAttr, SendFlags,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const INIT: QpAttrMask =
    QpAttrMask::STATE.union(QpAttrMask::PKEY_INDEX).union(QpAttrMask::PORT).union(QpAttrMask::ACCESS_FLAGS);

/// The call must have failed, with this number and these words.
#[track_caller]
fn refused<T>(result: Result<T, impl Into<Error>>, errno: Errno, text: &str) {
    match result {
        Ok(_) => panic!("accepted, though: {text}"),
        Err(error) => {
            let error = error.into();
            assert_eq!((error.to_string().as_str(), error.errno()), (text, errno));
        }
    }
}

#[test]
fn addresses_that_cannot_be_had_are_named() {
    let open = |name: &str, errno, text: &str| refused(Device::open(name), errno, text);
    open("eth99", Errno::Enoent, "`eth99` is neither a device, as `roce_eth0`, nor an IP address");
    open(
        "127.0.150.4:4791",
        Errno::Einval,
        "`127.0.150.4:4791` has a port: a device is opened by an address alone, `userdma devices` lists what there is",
    );
    assert!(matches!(Device::open("[::1]:4791"), Err(Error::Port(_))));
    open(
        "192.0.2.7",
        Errno::Eaddrnotavail,
        "cannot open the device: 192.0.2.7 is not an address of this machine (EADDRNOTAVAIL): use one that `ip address` lists",
    );
    open(
        "0.0.0.0",
        Errno::Einval,
        "cannot open the device: 0.0.0.0 does not name one host: a link needs one local unicast address",
    );
    open(
        "fe80::1",
        Errno::Einval,
        "cannot open the device: fe80::1 is link-local, a device needs an address that peers can route to",
    );
    open("127.0.150.2,127.0.150.2", Errno::Einval, "cannot open the device: 127.0.150.2 is given twice");
    refused(
        Device::builder().open(),
        Errno::Einval,
        "cannot open the device: a device needs an address of this machine",
    );
    let many = (0..33).fold(Device::builder(), |builder, host| builder.address([127, 0, 150, 100 + host]));
    refused(many.open(), Errno::Einval, "cannot open the device: 33 addresses, a device has at most 32");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let _stranger = std::net::UdpSocket::bind("127.0.150.3:4791").unwrap();
    let error = Device::open("127.0.150.3").unwrap_err();
    assert_eq!(error.errno(), Errno::Eaddrinuse);
    let (text, who) = error.to_string().split_once("; ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(
        text,
        "cannot open the device: 127.0.150.3 UDP port 4791 is taken by somebody who does not share it (EADDRINUSE): stop that program, use another local address, or choose a private port (`DeviceBuilder::private_port`)"
    );
    assert!(
        who.starts_with("127.0.150.3 belongs to ") && who.contains(&std::process::id().to_string()),
        "{who}"
    );
}

#[test]
fn faults_that_are_not_understood_are_named() {
    for (faults, text) in [
        (
            "lost=0.1",
            "faults: there is no fault called `lost`: use loss, dup, reorder, corrupt, delay, delay_share, rnr, down, seed",
        ),
        ("loss", "faults: `loss` is not of the form name=value"),
        ("loss=2", "faults: loss=2: a probability from 0 to 1 is wanted"),
        ("delay=5", "faults: delay=5: a time is wanted, as 250us or 1.5ms (ns, us, ms, s; up to an hour)"),
        ("seed=-1", "faults: seed=-1: a number below 2^64 is wanted, decimal or 0x and hexadecimal"),
        ("loss=0.1,loss=0.2", "faults: loss is given twice"),
    ] {
        let builder = Device::builder().address([127, 0, 150, 4]).faults(faults);
        refused(builder.open(), Errno::Einval, text);
    }
}

#[test]
fn a_capture_file_that_cannot_be_made_is_named() {
    let builder = Device::builder().address([127, 0, 150, 5]).capture("/nowhere/packets.pcapng");
    refused(
        builder.open(),
        Errno::Einval,
        "cannot open the device: capture file /nowhere/packets.pcapng: No such file or directory (os error 2)",
    );
    Device::open("127.0.150.5").expect("nothing is left of the first attempt");
}

#[test]
fn memory_that_cannot_be_registered_is_named() {
    let pd = Device::open("127.0.150.6").unwrap().alloc_pd().unwrap();
    for (access, text) in [
        (
            AccessFlags::REMOTE_WRITE,
            "cannot register memory: access rights AccessFlags(REMOTE_WRITE) do not go together (remote write and atomic need local write) or are not supported",
        ),
        (
            AccessFlags::REMOTE_ATOMIC,
            "cannot register memory: access rights AccessFlags(REMOTE_ATOMIC) do not go together (remote write and atomic need local write) or are not supported",
        ),
        (
            AccessFlags::ON_DEMAND,
            "cannot register memory: access rights AccessFlags(ON_DEMAND) do not go together (remote write and atomic need local write) or are not supported",
        ),
    ] {
        refused(pd.alloc(8, access), Errno::Einval, text);
        refused(pd.register(vec![0; 8], access), Errno::Einval, text);
    }
    refused(
        pd.register(Vec::new(), ALL),
        Errno::Einval,
        "cannot register memory: region of 0 bytes at 0x1: 1 to 2^47 bytes that end in the address space are possible",
    );
    refused(
        pd.alloc(0, ALL),
        Errno::Einval,
        "cannot register memory: region of 0 bytes at 0x1000: 1 to 2^47 bytes that end in the address space are possible",
    );
    refused(
        pd.alloc(1 << 50, ALL),
        Errno::Enomem,
        "cannot allocate 1125899906842624 bytes: Cannot allocate memory (os error 12)",
    );
    let raw = |addr: usize, len, access| {
        let addr = std::ptr::without_provenance_mut(addr);
        // SAFETY: nothing lies there, and as the region is refused, nothing is touched.
        unsafe { Mr::register_raw(&pd, addr, len, access) }
    };
    refused(
        raw(0x1000, 1 << 48, ALL),
        Errno::Einval,
        "cannot register memory: region of 281474976710656 bytes at 0x1000: 1 to 2^47 bytes that end in the address space are possible",
    );
    refused(
        raw(0x40, 8, AccessFlags::REMOTE_READ),
        Errno::Efault,
        "cannot register memory: memory at 0x40 is not readable",
    );
    refused(
        raw(0x40, 8, AccessFlags::LOCAL_WRITE),
        Errno::Efault,
        "cannot register memory: memory at 0x40 is not writable",
    );
}

#[test]
fn a_copy_that_leaves_its_region_is_refused() {
    let pd = Device::open("127.0.150.7").unwrap().alloc_pd().unwrap();
    let mr = pd.alloc(16, ALL).unwrap();
    let outside = "cannot copy: 7 bytes at offset 0xa are not inside the region of 16 bytes";
    refused(mr.read(10, &mut [0; 7]), Errno::Einval, outside);
    refused(mr.write(10, &[0; 7]), Errno::Einval, outside);
    refused(
        mr.slice(8..).read(0, &mut [0; 9]),
        Errno::Einval,
        "cannot copy: 9 bytes at offset 0x0 are not inside the region of 8 bytes",
    );
    refused(mr.load(4), Errno::Einval, "cannot copy: 8 bytes at offset 0x4 are not aligned to 8");
    refused(
        mr.fetch_add(16, 1),
        Errno::Einval,
        "cannot copy: 8 bytes at offset 0x10 are not inside the region of 16 bytes",
    );
}

#[test]
#[should_panic(expected = "is not inside 16 bytes")]
fn a_slice_outside_its_region_panics_as_slices_do() {
    let pd = Device::open("127.0.150.8").unwrap().alloc_pd().unwrap();
    let _ = pd.alloc(16, ALL).unwrap().slice(10..17);
}

#[test]
fn a_region_in_use_is_not_taken_apart() {
    let pd = Device::open("127.0.150.9").unwrap().alloc_pd().unwrap();
    let mr = pd.alloc(16, ALL).unwrap();
    let slice = mr.slice(..8);
    let kept = mr.deregister().unwrap_err();
    assert_eq!(
        (kept.to_string().as_str(), kept.reason.errno()),
        ("memory region is still used by 1 other objects", Errno::Ebusy)
    );
    drop(slice);
    kept.mr.deregister().unwrap();
}

#[test]
fn sizes_that_a_device_does_not_have_are_named() {
    let device = Device::open("127.0.150.10").unwrap();
    refused(
        device.create_cq(0),
        Errno::Einval,
        "cannot create the completion queue: completion queue of 0 entries: 1 to 4194304 are possible",
    );
    refused(
        device.create_cq(4_194_305),
        Errno::Einval,
        "cannot create the completion queue: completion queue of 4194305 entries: 1 to 4194304 are possible",
    );
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(1).unwrap());
    let qp = || pd.create_qp(&cq, &cq);
    for (builder, text) in [
        (
            qp().max_send_wr(65_537),
            "cannot create the queue pair: max_send_wr is 65537, at most 65536 is possible",
        ),
        (
            qp().max_recv_wr(65_537),
            "cannot create the queue pair: max_recv_wr is 65537, at most 65536 is possible",
        ),
        (qp().max_send_sge(33), "cannot create the queue pair: max_send_sge is 33, at most 32 is possible"),
        (qp().max_recv_sge(33), "cannot create the queue pair: max_recv_sge is 33, at most 32 is possible"),
        (
            qp().max_inline_data(1025),
            "cannot create the queue pair: max_inline_data is 1025, at most 1024 is possible",
        ),
        (qp().sgid_index(3), "sgid_index is 3, the device has 1 GIDs"),
        (
            qp().access(AccessFlags::FLUSH_GLOBAL),
            "cannot modify the queue pair: qp_access_flags is 256, local write, remote write, read and atomic, and what a region may have besides is possible",
        ),
    ] {
        refused(builder.build(), Errno::Einval, text);
    }
}

#[test]
fn attributes_that_are_not_possible_are_named_and_the_queue_pair_is_kept() {
    let device = Device::open("127.0.150.11").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(1).unwrap());
    let mut qp = pd.create_qp(&cq, &cq).build().unwrap();
    let peer = qp.endpoint();
    let gid = |gid: [u8; 16]| Endpoint { gid: Gid::new(gid), ..peer };
    let rtr = RtrAttr::default();
    for (peer, attr, text) in [
        (
            peer,
            RtrAttr { max_dest_rd_atomic: 129, ..rtr },
            "cannot modify the queue pair: max_dest_rd_atomic is 129, 0 to 128 is possible",
        ),
        (
            peer,
            RtrAttr { flow_label: 1 << 20, ..rtr },
            "cannot modify the queue pair: grh.flow_label is 1048576, a number of 20 bits is possible",
        ),
        (
            Endpoint { qpn: userdma::Qpn::new(0xff_ffff), ..peer },
            rtr,
            "cannot modify the queue pair: dest_qp_num is 16777215, a queue pair's number is possible",
        ),
        (
            gid([0; 16]),
            rtr,
            "cannot modify the queue pair: grh.dgid is ::, the peer's GID (RoCE needs the global route) is possible",
        ),
        (
            Endpoint { gid: std::net::Ipv4Addr::new(224, 0, 0, 1).into(), ..peer },
            rtr,
            "cannot modify the queue pair: grh.dgid is ::ffff:224.0.0.1, a single peer's GID, not a group's is possible",
        ),
        (
            gid(std::net::Ipv6Addr::LOCALHOST.octets()),
            rtr,
            "cannot modify the queue pair: grh.dgid is ::1, a GID of the same address family as the GID at sgid_index is possible",
        ),
    ] {
        let kept = qp.to_rtr(&peer, &attr).unwrap_err();
        assert_eq!((kept.to_string().as_str(), kept.reason.errno()), (text, Errno::Einval));
        assert_eq!(kept.qp.state(), QpState::Init);
        qp = kept.qp;
    }
    let mut qp = qp.to_rtr(&peer, &rtr).unwrap();
    let rts = RtsAttr::default();
    for (attr, text) in [
        (RtsAttr { retry_cnt: 8, ..rts }, "cannot modify the queue pair: retry_cnt is 8, 0 to 7 is possible"),
        (RtsAttr { rnr_retry: 8, ..rts }, "cannot modify the queue pair: rnr_retry is 8, 0 to 7 is possible"),
        (
            RtsAttr { max_rd_atomic: 129, ..rts },
            "cannot modify the queue pair: max_rd_atomic is 129, 0 to 128 is possible",
        ),
    ] {
        let kept = qp.to_rts(&attr).unwrap_err();
        assert_eq!((kept.to_string().as_str(), kept.reason.errno()), (text, Errno::Einval));
        assert_eq!(kept.qp.state(), QpState::Rtr);
        qp = kept.qp;
    }
    assert_eq!(qp.to_rts(&rts).unwrap().state(), QpState::Rts);
}

#[test]
fn transitions_and_masks_that_do_not_fit_are_named() {
    let device = Device::open("127.0.150.12").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(1).unwrap());
    let qp = pd.create_qp(&cq, &cq).build_unchecked().unwrap();
    let to = |qp_state| QpAttr { qp_state, port_num: 1, ..QpAttr::default() };
    let modify = |attr: QpAttr, mask, text: &str| refused(qp.modify(&attr, mask), Errno::Einval, text);
    modify(
        to(QpState::Rts),
        QpAttrMask::STATE,
        "cannot modify the queue pair: a QP in Reset cannot go to Rts",
    );
    modify(
        to(QpState::Init),
        QpAttrMask::STATE | QpAttrMask::PORT,
        "cannot modify the queue pair: the transition from Reset to Init needs QpAttrMask(ACCESS_FLAGS | PKEY_INDEX)",
    );
    modify(
        to(QpState::Init),
        INIT | QpAttrMask::TIMEOUT,
        "cannot modify the queue pair: the transition from Reset to Init does not take QpAttrMask(TIMEOUT)",
    );
    modify(
        QpAttr { cur_qp_state: QpState::Rts, ..to(QpState::Init) },
        INIT | QpAttrMask::CUR_STATE,
        "cannot modify the queue pair: cur_qp_state is Rts, the QP is in Reset",
    );
    modify(
        QpAttr { port_num: 2, ..to(QpState::Init) },
        INIT,
        "cannot modify the queue pair: port_num is 2, 1 is possible",
    );
    modify(
        QpAttr { pkey_index: 1, ..to(QpState::Init) },
        INIT,
        "cannot modify the queue pair: pkey_index is 1, 0 is possible",
    );
    assert_eq!(qp.state(), QpState::Reset, "nothing has changed");
    refused(
        qp.post_recv(1, ()),
        Errno::Einval,
        "cannot post: nothing may be posted to this queue in state Reset",
    );
    qp.modify(&to(QpState::Init), INIT).unwrap();
    refused(
        qp.post_send(1, (), SIGNALED),
        Errno::Einval,
        "cannot post: nothing may be posted to this queue in state Init",
    );
}

#[test]
fn work_requests_that_do_not_fit_are_named() {
    let (a, b) = pair(223);
    let mr = a.mr(64, 0);
    let remote = b.mr(64, 0).remote();
    let many = vec![mr.slice(..1); 17];
    let text = "cannot post: 17 scatter/gather elements, the queue takes 16";
    refused(a.qp.post_send(1, &many, SIGNALED), Errno::Einval, text);
    refused(a.qp.post_recv(1, &many), Errno::Einval, text);
    let many = vec![mr.slice(..1); 33];
    refused(
        a.qp.post_send(1, &many, SIGNALED),
        Errno::Einval,
        "cannot post: 33 scatter/gather elements, the queue takes 16",
    );
    refused(
        a.qp.post_send(1, Inline(&[0; 513]), SIGNALED),
        Errno::Einval,
        "cannot post: 513 bytes inline, the queue takes 512",
    );
    refused(
        a.qp.post_fetch_add(1, &mr.slice(..4), remote, 1, SIGNALED),
        Errno::Einval,
        "cannot post: atomic: length is 0x4, 8 is possible",
    );
    let unaligned = userdma::RemoteMr { addr: 0x1004, ..remote };
    refused(
        a.qp.post_compare_swap(1, &mr.slice(..8), unaligned, 1, 2, SIGNALED),
        Errno::Einval,
        "cannot post: atomic: remote_addr is 0x1004, a multiple of 8 is possible",
    );
    a.qp.post_write(2, &mr.slice(..), remote, SIGNALED).unwrap();
    assert_eq!(a.next().wr_id, 2, "nothing else was posted");
}

#[test]
fn a_message_of_more_than_2_to_the_31_bytes_is_not_posted() {
    let device = Device::open("127.0.150.13").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(1).unwrap());
    let qp = pd.create_qp(&cq, &cq).max_send_sge(32).build().unwrap();
    let peer = qp.endpoint();
    let qp = qp.connect(&peer).unwrap();
    let len = (64 << 20) + 1;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, -1, 0) };
    assert_ne!(addr, libc::MAP_FAILED);
    // SAFETY: nobody writes it, and it is never unmapped.
    let mr = unsafe { Mr::register_raw(&pd, addr.cast(), len, AccessFlags::empty()) }.unwrap();
    refused(
        qp.post_send(1, &vec![mr.slice(..); 32], SIGNALED),
        Errno::Einval,
        "cannot post: message of 2147483680 bytes, at most 2^31 are possible",
    );
}

#[test]
fn a_full_queue_says_how_much_it_holds() {
    let device = Device::open("127.0.150.14").unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4).unwrap());
    let qp = pd.create_qp(&cq, &cq).max_send_wr(1).max_recv_wr(2).build().unwrap();
    let peer = qp.endpoint();
    let qp = qp.connect(&peer).unwrap();
    for id in 0..2 {
        qp.post_recv(id, ()).unwrap();
    }
    let text = "cannot post: the queue holds 2 work requests and is full";
    refused(qp.post_recv(2, ()), Errno::Enomem, text);
    qp.post_send(1, (), SIGNALED).unwrap();
    refused(
        qp.post_send(2, (), SIGNALED),
        Errno::Enomem,
        "cannot post: the queue holds 1 work requests and is full",
    );
}

#[test]
fn objects_of_another_device_are_refused_by_their_kind() {
    let (a, b) = pair(224);
    let theirs = b.mr(8, 0);
    refused(
        a.qp.post_recv(1, &theirs.slice(..)),
        Errno::Einval,
        "the memory region belongs to another device",
    );
    let window = b.pd.alloc_mw().unwrap();
    let mine = a.mr(8, 0);
    refused(
        a.qp.post_bind_mw(1, &window, &mine.slice(..), AccessFlags::REMOTE_READ, SIGNALED),
        Errno::Einval,
        "the memory window belongs to another device",
    );
    refused(
        a.pd.create_qp(&b.cq, &a.cq).build(),
        Errno::Einval,
        "the completion queue belongs to another device",
    );
    let channel = a.device.create_comp_channel().unwrap();
    refused(
        b.device.create_cq_on(1, &channel),
        Errno::Einval,
        "the completion channel belongs to another device",
    );
}

#[test]
fn a_queue_on_a_shared_channel_is_not_waited_for_alone() {
    let device = Device::open("127.0.150.15").unwrap();
    let channel = device.create_comp_channel().unwrap();
    let cq = device.create_cq_on(1, &channel).unwrap();
    refused(
        cq.wait(&mut [], Some(Duration::ZERO)),
        Errno::Einval,
        "the completion queue shares its channel: wait on the channel",
    );
    cq.req_notify(Arm::Any).unwrap();
    assert_eq!(channel.try_event().unwrap(), None);
}

/// Dropping is never refused: what others need stays until they are gone.
#[test]
fn what_a_queue_pair_needs_outlives_its_handles() {
    let (a, b) = pair(225);
    let (mine, theirs) = (a.mr(8, 1), b.mr(8, 2));
    let common::Side { device, pd, cq, qp } = a;
    drop((device, pd));
    qp.post_write(1, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    assert_eq!(cq.wait_for(1, common::LONG).unwrap().len(), 1);
    drop(cq);
    qp.post_write(2, &mine.slice(..), theirs.remote(), SIGNALED).unwrap();
    drop(qp);
    mine.deregister().expect("what was posted is gone with its queue pair");
}

/// Limits that no test reaches by making so many objects.
#[test]
fn limits_are_named() {
    for (error, errno, text) in [
        (Error::NoPd, Errno::Enomem, "no more than 65536 protection domains"),
        (
            RegMrError::TooMany { max: 131_072 }.into(),
            Errno::Enomem,
            "cannot register memory: no more than 131072 memory regions",
        ),
        (
            BindMwError::TooMany { max: 131_072 }.into(),
            Errno::Enomem,
            "memory window: no more than 131072 memory windows",
        ),
        (
            CreateCqError::TooMany { max: 65_536 }.into(),
            Errno::Enomem,
            "cannot create the completion queue: no more than 65536 completion queues",
        ),
        (
            CreateQpError::TooMany { max: 16_382 }.into(),
            Errno::Enomem,
            "cannot create the queue pair: no more than 16382 queue pairs",
        ),
    ] {
        refused(Err::<(), _>(error), errno, text);
    }
}

/// What a whole device can come to; `processes.rs` and the unit tests of `host` show when.
#[test]
fn a_device_that_is_not_usable_says_why() {
    for (error, errno, text) in [
        (
            HostError::Forked.into(),
            Errno::Einval,
            "the device was opened before fork and belongs to the parent process",
        ),
        (HostError::NoThread.into(), Errno::Einval, "the system gives no thread"),
        (HostError::Failed.into(), Errno::Einval, "the device has stopped after an internal error"),
        (
            Error::CqOverflow { cq: 3, cqe: 16 },
            Errno::Enomem,
            "completion queue 3 of 16 entries has overflowed",
        ),
        (userdma::MemError::Fault.into(), Errno::Efault, "cannot copy: memory is no longer accessible"),
        (ModifyQpError::NoQp.into(), Errno::Einval, "cannot modify the queue pair: no such queue pair"),
        (ObjectError::NoObject("queue pair").into(), Errno::Einval, "no such queue pair"),
    ] {
        refused(Err::<(), Error>(error), errno, text);
    }
}
