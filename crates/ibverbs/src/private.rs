//! What provider libraries (`libmlx5`, `libefa`, ...) want to find when they are loaded, at the node of their release. They are
//! not called: those libraries find no device of theirs. Tools of the distribution use `ibv_query_gid_type`, which is real.

use crate::query::query_gid_type;
use crate::unsupported::{errno, negative, nothing, null};

/// The names at each of the nodes.
macro_rules! private {
    ($($f:path { $($name:literal),* $(,)? })*) => { $($(
        symbol!("25_", $name, "@IBVERBS_PRIVATE_25", $f);
        symbol!("33_", $name, "@IBVERBS_PRIVATE_33", $f);
        symbol!("34_", $name, "@IBVERBS_PRIVATE_34", $f);
        symbol!("57_", $name, "@IBVERBS_PRIVATE_57", $f);
        symbol!("59_", $name, "@IBVERBS_PRIVATE_59", $f);
        symbol!("64_", $name, "@@IBVERBS_PRIVATE_64", $f);
    )*)* };
}

private! {
    query_gid_type { "ibv_query_gid_type" }
    null {
        "_verbs_init_and_alloc_context",
        "verbs_open_device",
        "ibv_dmabuf_heap_alloc",
        "ibv_wr_opcode_str",
    }
    negative {
        "ibv_read_ibdev_sysfs_file",
    }
    nothing {
        "__verbs_log",
        "verbs_set_ops",
        "verbs_uninit_context",
        "verbs_init_cq",
        "__ioctl_final_num_attrs",
        "ibv_dmabuf_heap_free",
        "ibv_dmabuf_heap_destroy",
        "verbs_register_driver_25",
        "verbs_register_driver_33",
        "verbs_register_driver_34",
        "verbs_register_driver_57",
        "verbs_register_driver_59",
        "verbs_register_driver_64",
    }
    errno {
        "execute_ioctl",
        "ibv_cmd_advise_mr",
        "ibv_cmd_alloc_dm",
        "ibv_cmd_alloc_mw",
        "ibv_cmd_alloc_pd",
        "ibv_cmd_attach_mcast",
        "ibv_cmd_close_xrcd",
        "ibv_cmd_create_ah",
        "ibv_cmd_create_counters",
        "ibv_cmd_create_cq",
        "ibv_cmd_create_cq_ex",
        "ibv_cmd_create_flow",
        "ibv_cmd_create_flow_action_esp",
        "ibv_cmd_create_qp",
        "ibv_cmd_create_qp_ex",
        "ibv_cmd_create_qp_ex2",
        "ibv_cmd_create_rwq_ind_table",
        "ibv_cmd_create_srq",
        "ibv_cmd_create_srq_ex",
        "ibv_cmd_create_wq",
        "ibv_cmd_dealloc_mw",
        "ibv_cmd_dealloc_pd",
        "ibv_cmd_dereg_mr",
        "ibv_cmd_destroy_ah",
        "ibv_cmd_destroy_counters",
        "ibv_cmd_destroy_cq",
        "ibv_cmd_destroy_flow",
        "ibv_cmd_destroy_flow_action",
        "ibv_cmd_destroy_qp",
        "ibv_cmd_destroy_rwq_ind_table",
        "ibv_cmd_destroy_srq",
        "ibv_cmd_destroy_wq",
        "ibv_cmd_detach_mcast",
        "ibv_cmd_free_dm",
        "ibv_cmd_get_context",
        "ibv_cmd_modify_cq",
        "ibv_cmd_modify_flow_action_esp",
        "ibv_cmd_modify_qp",
        "ibv_cmd_modify_qp_ex",
        "ibv_cmd_modify_srq",
        "ibv_cmd_modify_wq",
        "ibv_cmd_open_qp",
        "ibv_cmd_open_xrcd",
        "ibv_cmd_poll_cq",
        "ibv_cmd_post_recv",
        "ibv_cmd_post_send",
        "ibv_cmd_post_srq_recv",
        "ibv_cmd_query_context",
        "ibv_cmd_query_device_any",
        "ibv_cmd_query_mr",
        "ibv_cmd_query_port",
        "ibv_cmd_query_qp",
        "ibv_cmd_query_srq",
        "ibv_cmd_read_counters",
        "ibv_cmd_reg_dm_mr",
        "ibv_cmd_reg_dmabuf_mr",
        "ibv_cmd_reg_mr",
        "ibv_cmd_req_notify_cq",
        "ibv_cmd_rereg_mr",
        "ibv_cmd_resize_cq",
        "ibv_cmd_query_device",
        "ibv_cmd_alloc_dmah",
        "ibv_cmd_free_dmah",
        "ibv_cmd_create_cq_ex2",
        "ibv_cmd_export_dmabuf_fd",
        "ibv_cmd_query_port_speed",
        "ibv_cmd_reg_mr_ex",
        "ibv_dmabuf_heap_cc_shared_init",
    }
}

/// A flag of providers: one byte of data, which is 0.
#[cfg(not(test))]
macro_rules! flag {
    ($($node:literal),*) => {
        core::arch::global_asm!(
            ".pushsection .data.userdma_flag,\"aw\",@progbits",
            $(
                concat!(".globl userdma_flag_", $node),
                concat!(".type userdma_flag_", $node, ",@object"),
                concat!(".size userdma_flag_", $node, ",1"),
                concat!(".symver userdma_flag_", $node, ",verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_", $node),
                concat!("userdma_flag_", $node, ":"),
            )*
            ".byte 0",
            ".popsection",
        );
    };
}
#[cfg(not(test))]
flag!("25", "33", "34", "57", "59", "64");
