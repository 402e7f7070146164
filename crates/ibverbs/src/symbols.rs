//! The public functions, each at the node at which its present form appeared.

use crate::unsupported::{errno, fork_is_safe, fork_needs_nothing, import_device, negative, nothing, null};
use crate::{ah, channel, context, cq, devices, event, marshal, mr, multicast, names, pd, qp, query, srq};

public! {
    "@@IBVERBS_1.0" {
        "ibv_create_comp_channel" => channel::create_comp_channel,
        "ibv_destroy_comp_channel" => channel::destroy_comp_channel,
        "ibv_rate_to_mult" => names::rate_to_mult,
        "mult_to_ibv_rate" => names::mult_to_rate,
        "ibv_get_sysfs_path" => devices::get_sysfs_path,
        "ibv_read_sysfs_file" => devices::read_sysfs_file,
        "ibv_copy_path_rec_from_kern" => marshal::copy_path_rec_from_kern,
        "ibv_copy_path_rec_to_kern" => marshal::copy_path_rec_to_kern,
        "ibv_copy_qp_attr_from_kern" => marshal::copy_qp_attr_from_kern,
    }
    "@@IBVERBS_1.1" {
        "ibv_get_device_list" => devices::get_device_list,
        "ibv_free_device_list" => devices::free_device_list,
        "ibv_get_device_name" => devices::get_device_name,
        "ibv_get_device_guid" => devices::get_device_guid,
        "ibv_open_device" => context::open_device,
        "ibv_close_device" => context::close_device,
        "ibv_get_async_event" => event::get_async_event,
        "ibv_ack_async_event" => event::ack_async_event,
        "ibv_query_device" => query::query_device,
        "ibv_query_port" => query::query_port,
        "ibv_query_gid" => query::query_gid,
        "ibv_query_pkey" => query::query_pkey,
        "ibv_alloc_pd" => pd::alloc_pd,
        "ibv_dealloc_pd" => pd::dealloc_pd,
        "ibv_reg_mr" => mr::reg_mr,
        "ibv_rereg_mr" => mr::rereg_mr,
        "ibv_dereg_mr" => mr::dereg_mr,
        "ibv_create_cq" => cq::create_cq,
        "ibv_resize_cq" => cq::resize_cq,
        "ibv_destroy_cq" => cq::destroy_cq,
        "ibv_get_cq_event" => channel::get_cq_event,
        "ibv_ack_cq_events" => channel::ack_cq_events,
        "ibv_create_qp" => qp::create_qp,
        "ibv_modify_qp" => qp::modify_qp,
        "ibv_query_qp" => qp::query_qp,
        "ibv_destroy_qp" => qp::destroy_qp,
        "ibv_create_ah" => ah::create_ah,
        "ibv_destroy_ah" => ah::destroy_ah,
        "ibv_copy_ah_attr_from_kern" => marshal::copy_ah_attr_from_kern,
        "ibv_node_type_str" => names::node_type_str,
        "ibv_port_state_str" => names::port_state_str,
        "ibv_event_type_str" => names::event_type_str,
        "ibv_wc_status_str" => names::wc_status_str,
        "ibv_rate_to_mbps" => names::rate_to_mbps,
        "mbps_to_ibv_rate" => names::mbps_to_rate,
        "ibv_fork_init" => fork_is_safe,
        "ibv_dontfork_range" => fork_is_safe,
        "ibv_dofork_range" => fork_is_safe,
        "ibv_create_srq" => srq::create_srq,
        "ibv_modify_srq" => srq::modify_srq,
        "ibv_query_srq" => srq::query_srq,
        "ibv_destroy_srq" => srq::destroy_srq,
        "ibv_attach_mcast" => multicast::attach,
        "ibv_detach_mcast" => multicast::detach,
        "ibv_init_ah_from_wc" => ah::init_ah_from_wc,
        "ibv_create_ah_from_wc" => ah::create_ah_from_wc,
        "ibv_resolve_eth_l2_from_gid" => negative,
    }
    "@@IBVERBS_1.5" { "ibv_get_pkey_index" => query::get_pkey_index }
    "@@IBVERBS_1.6" { "ibv_qp_to_qp_ex" => qp::qp_to_qp_ex }
    "@@IBVERBS_1.7" { "ibv_reg_mr_iova" => mr::reg_mr_iova }
    "@@IBVERBS_1.8" { "ibv_reg_mr_iova2" => mr::reg_mr_iova2 }
    "@@IBVERBS_1.9" { "ibv_get_device_index" => devices::get_device_index }
    "@@IBVERBS_1.10" {
        "ibv_query_ece" => errno,
        "ibv_set_ece" => errno,
        "ibv_import_device" => import_device,
        "ibv_import_pd" => null,
        "ibv_unimport_pd" => nothing,
        "ibv_import_mr" => null,
        "ibv_unimport_mr" => nothing,
    }
    "@@IBVERBS_1.11" {
        "_ibv_query_gid_ex" => query::query_gid_ex,
        "_ibv_query_gid_table" => query::query_gid_table,
    }
    "@@IBVERBS_1.12" { "ibv_reg_dmabuf_mr" => null }
    "@@IBVERBS_1.13" {
        "ibv_is_fork_initialized" => fork_needs_nothing,
        "ibv_import_dm" => null,
        "ibv_unimport_dm" => nothing,
    }
    "@@IBVERBS_1.14" { "ibv_query_qp_data_in_order" => qp::query_qp_data_in_order }
    "@@IBVERBS_1.15" {
        "ibv_alloc_dmah" => null,
        "ibv_dealloc_dmah" => errno,
        "ibv_reg_mr_ex" => null,
    }
    "@@IBVERBS_1.16" {
        "ibv_dm_export_dmabuf_fd" => negative,
        "ibv_query_port_speed" => errno,
    }
    "@@IBVERBS_1.17" {
        "ibv_alloc_buf" => null,
        "ibv_free_buf" => nothing,
        "ibv_reg_buf_mr" => null,
    }
}
