//! The header of the distribution has the last word: a C program states what we believe, and must compile.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::{Command, Stdio};

use super::*;

/// Adds assertions on a structure: its size and alignment, and the offset and size of fields, as `ours = theirs`.
macro_rules! layout {
    ($program:ident, $c:literal, $rust:ty, whole { $($ours:ident $(= $theirs:literal)?),* $(,)? }) => {
        writeln!($program, "_Static_assert(sizeof({}) == {}, \"size of {}\");", $c, size_of::<$rust>(), $c).unwrap();
        layout!($program, $c, $rust, part { $($ours $(= $theirs)?),* });
    };
    ($program:ident, $c:literal, $rust:ty, part { $($ours:ident $(= $theirs:literal)?),* $(,)? }) => {
        writeln!($program, "_Static_assert(_Alignof({}) == {}, \"alignment of {}\");", $c, align_of::<$rust>(), $c)
            .unwrap();
        $(
            let field = [$($theirs,)? stringify!($ours)][0];
            let offset = offset_of!($rust, $ours);
            writeln!($program, "_Static_assert(offsetof({}, {field}) == {offset}, \"{} {field}\");", $c, $c).unwrap();
        )*
    };
}

#[test]
fn structures_lie_as_in_the_header_of_the_distribution() {
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skip("libibverbs-dev is not installed");
    }
    let mut program = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
    contexts(&mut program);
    objects(&mut program);
    extended_objects(&mut program);
    work(&mut program);
    attributes(&mut program);
    queue_pair_attributes(&mut program);
    shared_receive_queue_attributes(&mut program);
    compile(&program);
}

/// Lets the C compiler judge.
pub(crate) fn compile(program: &str) {
    let mut compiler = Command::new("cc");
    compiler.args(["-x", "c", "-std=gnu11", "-fsyntax-only", "-"]).stdin(Stdio::piped());
    let Ok(mut child) = compiler.spawn() else { return skip("no C compiler") };
    child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "the header says otherwise, see above");
}

/// It compiles. What calls and programs write at any time may lie under a shared reference as a cell only; contexts, regions and
/// windows are reached by pointer.
#[test]
fn structures_that_programs_write_are_cells() {
    fn is_cell<T>(_: &std::cell::UnsafeCell<T>) {}
    let _ = |object: &crate::qp::QpObject| is_cell::<QpEx>(&object.abi);
    let _ = |object: &crate::cq::CqObject| is_cell::<CqEx>(&object.abi);
    let _ = |object: &crate::channel::ChannelObject| is_cell::<CompChannel>(&object.abi);
}

/// Says that the test could not run, as `./test` wants it.
pub(crate) fn skip(reason: &str) {
    println!("SKIP: {reason}");
    if let Some(file) = std::env::var_os("USERDMA_SKIPS") {
        let mut file = std::fs::File::options().append(true).create(true).open(file).unwrap();
        writeln!(file, "ibverbs layout: {reason}").unwrap();
    }
}

fn contexts(p: &mut String) {
    layout!(
        p,
        "struct ibv_device",
        Device,
        whole { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
    );
    layout!(
        p,
        "struct ibv_context_ops",
        ContextOps,
        whole { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
    );
    layout!(
        p,
        "struct ibv_context",
        Context,
        whole { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
    );
    // It grows at its start: what counts is the distance to the context.
    macro_rules! before_context {
        ($($ours:ident = $theirs:literal),*) => { $(
            let distance = offset_of!(VerbsContext, context) - offset_of!(VerbsContext, $ours);
            writeln!(
                p,
                "_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {}) \
                 == {distance}, \"verbs_context {}\");",
                $theirs, $theirs
            ).unwrap();
        )* };
    }
    before_context!(
        query_port = "query_port",
        none_before_cq = "advise_mr",
        create_cq_ex = "create_cq_ex",
        private = "priv",
        query_device_ex = "query_device_ex",
        none_before_qp = "ibv_destroy_flow",
        create_qp_ex = "create_qp_ex",
        get_srq_num = "get_srq_num",
        create_srq_ex = "create_srq_ex",
        none_at_end = "open_xrcd",
        size = "sz"
    );
}

fn objects(p: &mut String) {
    layout!(p, "struct ibv_pd", Pd, whole { context, handle });
    layout!(p, "struct ibv_mr", Mr, whole { context, pd, addr, length, handle, lkey, rkey });
    layout!(p, "struct ibv_mw", Mw, whole { context, pd, rkey, handle, mw_type = "type" });
    layout!(p, "struct ibv_ah", Ah, whole { context, pd, handle });
    layout!(p, "struct ibv_comp_channel", CompChannel, whole { context, fd, refcnt });
    layout!(
        p,
        "struct ibv_cq",
        Cq,
        whole {
            context,
            channel,
            cq_context,
            handle,
            cqe,
            mutex,
            cond,
            comp_events_completed,
            async_events_completed
        }
    );
    layout!(
        p,
        "struct ibv_qp",
        Qp,
        whole {
            context,
            qp_context,
            pd,
            send_cq,
            recv_cq,
            srq,
            handle,
            qp_num,
            state,
            qp_type,
            mutex,
            cond,
            events_completed
        }
    );
    layout!(
        p,
        "struct ibv_srq",
        Srq,
        whole { context, srq_context, pd, handle, mutex, cond, events_completed }
    );
    layout!(p, "struct ibv_async_event", AsyncEvent, whole { element, event_type });
}

fn extended_objects(p: &mut String) {
    layout!(p, "struct ibv_cq_ex", CqEx, whole {
        cq = "context", comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err,
        read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl,
        read_dlid_path_bits, none = "read_completion_ts"
    });
    layout!(p, "struct ibv_qp_ex", QpEx, part {
        qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv,
        wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv,
        none_before_ud_addr = "wr_send_tso", wr_set_ud_addr, none_before_inline = "wr_set_xrc_srqn",
        wr_set_inline_data, wr_set_inline_data_list, wr_set_sge,
        wr_set_sge_list, wr_start, wr_complete, wr_abort
    });
    layout!(p, "struct ibv_data_buf", DataBuf, whole { addr, length });
}

fn work(p: &mut String) {
    layout!(p, "struct ibv_sge", Sge, whole { addr, length, lkey });
    layout!(p, "struct ibv_mw_bind_info", BindMwInfo, whole { mr, addr, length, mw_access_flags });
    layout!(p, "struct ibv_mw_bind", MwBind, whole { wr_id, send_flags, bind_info });
    layout!(p, "struct ibv_send_wr", SendWr, whole {
        wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data,
        remote_addr = "wr.rdma.remote_addr", rkey_or_compare = "wr.atomic.compare_add", swap = "wr.atomic.swap",
        atomic_rkey = "wr.atomic.rkey", xrc_srqn = "qp_type.xrc.remote_srqn", bind_mw = "bind_mw.mw",
        bind_rkey = "bind_mw.rkey", bind_info = "bind_mw.bind_info"
    });
    layout!(p, "struct ibv_send_wr", SendWr, whole { rkey_or_compare = "wr.rdma.rkey", imm_data = "invalidate_rkey" });
    layout!(p, "struct ibv_recv_wr", RecvWr, whole { wr_id, next, sg_list, num_sge });
    layout!(
        p,
        "struct ibv_wc",
        Wc,
        whole {
            wr_id,
            status,
            opcode,
            vendor_err,
            byte_len,
            imm_data,
            qp_num,
            src_qp,
            wc_flags,
            pkey_index,
            slid,
            sl,
            dlid_path_bits
        }
    );
}

fn attributes(p: &mut String) {
    layout!(
        p,
        "struct ibv_device_attr",
        DeviceAttr,
        whole {
            fw_ver,
            node_guid,
            sys_image_guid,
            max_mr_size,
            page_size_cap,
            vendor_id,
            vendor_part_id,
            hw_ver,
            max_qp,
            max_qp_wr,
            device_cap_flags,
            max_sge,
            max_sge_rd,
            max_cq,
            max_cqe,
            max_mr,
            max_pd,
            max_qp_rd_atom,
            max_ee_rd_atom,
            max_res_rd_atom,
            max_qp_init_rd_atom,
            max_ee_init_rd_atom,
            atomic_cap,
            max_ee,
            max_rdd,
            max_mw,
            max_raw_ipv6_qp,
            max_raw_ethy_qp,
            max_mcast_grp,
            max_mcast_qp_attach,
            max_total_mcast_qp_attach,
            max_ah,
            max_fmr,
            max_map_per_fmr,
            max_srq,
            max_srq_wr,
            max_srq_sge,
            max_pkeys,
            local_ca_ack_delay,
            phys_port_cnt
        }
    );
    layout!(p, "struct ibv_device_attr_ex", DeviceAttrEx, whole {
        orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex,
        none = "tso_caps", phys_port_cnt_ex
    });
    // Releases from 62 on have one field more at the end.
    layout!(
        p,
        "struct ibv_port_attr",
        PortAttr,
        part {
            state,
            max_mtu,
            active_mtu,
            gid_tbl_len,
            port_cap_flags,
            max_msg_sz,
            bad_pkey_cntr,
            qkey_viol_cntr,
            pkey_tbl_len,
            lid,
            sm_lid,
            lmc,
            max_vl_num,
            sm_sl,
            subnet_timeout,
            init_type_reply,
            active_width,
            active_speed,
            phys_state,
            link_layer,
            flags,
            port_cap_flags2
        }
    );
    layout!(p, "struct ibv_gid_entry", GidEntry, whole { gid, gid_index, port_num, gid_type, ndev_ifindex });
    layout!(
        p,
        "struct ibv_global_route",
        GlobalRoute,
        whole { dgid, flow_label, sgid_index, hop_limit, traffic_class }
    );
    layout!(
        p,
        "struct ibv_ah_attr",
        AhAttr,
        whole { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
    );
    layout!(
        p,
        "struct ibv_cq_init_attr_ex",
        CqInitAttrEx,
        whole { cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain }
    );
}

fn queue_pair_attributes(p: &mut String) {
    layout!(
        p,
        "struct ibv_qp_cap",
        QpCap,
        whole { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    );
    layout!(
        p,
        "struct ibv_qp_init_attr",
        QpInitAttr,
        whole { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
    );
    layout!(
        p,
        "struct ibv_qp_init_attr_ex",
        QpInitAttrEx,
        whole {
            qp_context,
            send_cq,
            recv_cq,
            srq,
            cap,
            qp_type,
            sq_sig_all,
            comp_mask,
            pd,
            xrcd,
            create_flags,
            max_tso_header,
            rwq_ind_tbl,
            rx_hash_conf,
            source_qpn,
            send_ops_flags
        }
    );
    layout!(
        p,
        "struct ibv_qp_attr",
        QpAttr,
        whole {
            qp_state,
            cur_qp_state,
            path_mtu,
            path_mig_state,
            qkey,
            rq_psn,
            sq_psn,
            dest_qp_num,
            qp_access_flags,
            cap,
            ah_attr,
            alt_ah_attr,
            pkey_index,
            alt_pkey_index,
            en_sqd_async_notify,
            sq_draining,
            max_rd_atomic,
            max_dest_rd_atomic,
            min_rnr_timer,
            port_num,
            timeout,
            retry_cnt,
            rnr_retry,
            alt_port_num,
            alt_timeout,
            rate_limit
        }
    );
}

fn shared_receive_queue_attributes(p: &mut String) {
    layout!(p, "struct ibv_srq_attr", SrqAttr, whole { max_wr, max_sge, srq_limit });
    layout!(p, "struct ibv_srq_init_attr", SrqInitAttr, whole { srq_context, attr });
    layout!(
        p,
        "struct ibv_srq_init_attr_ex",
        SrqInitAttrEx,
        whole { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
    );
}
