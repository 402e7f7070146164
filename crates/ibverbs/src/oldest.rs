//! The oldest forms of functions, hidden at the first node. Programs that were linked without versions bind to them, and
//! their structures are others than today's: they fail.

use crate::unsupported::{errno, negative, nothing, null};

macro_rules! oldest {
    ($($f:path { $($name:literal),* $(,)? })*) => { $($(
        symbol!("oldest_", $name, "@IBVERBS_1.0", $f);
    )*)* };
}

oldest! {
    null {
        "ibv_alloc_pd",
        "ibv_create_ah",
        "ibv_create_cq",
        "ibv_create_qp",
        "ibv_create_srq",
        "ibv_get_device_list",
        "ibv_get_device_name",
        "ibv_open_device",
        "ibv_reg_mr",
    }
    negative {
        "ibv_get_async_event",
        "ibv_get_cq_event",
        "ibv_query_gid",
        "ibv_query_pkey",
    }
    nothing {
        "ibv_ack_async_event",
        "ibv_ack_cq_events",
        "ibv_free_device_list",
        "ibv_get_device_guid",
    }
    errno {
        "ibv_attach_mcast",
        "ibv_close_device",
        "ibv_dealloc_pd",
        "ibv_dereg_mr",
        "ibv_destroy_ah",
        "ibv_destroy_cq",
        "ibv_destroy_qp",
        "ibv_destroy_srq",
        "ibv_detach_mcast",
        "ibv_modify_qp",
        "ibv_modify_srq",
        "ibv_query_device",
        "ibv_query_port",
        "ibv_query_qp",
        "ibv_query_srq",
        "ibv_resize_cq",
    }
}

symbol!("oldest_", "ibv_register_driver", "@IBVERBS_1.1", nothing);
