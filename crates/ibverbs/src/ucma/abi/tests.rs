//! The header of the distribution has the last word here too.

use std::fmt::Write as _;

use super::*;
use crate::abi::tests::{compile, skip};

#[test]
fn commands_lie_as_in_the_header_of_the_distribution() {
    if !std::path::Path::new("/usr/include/rdma/rdma_user_cm.h").exists() {
        return skip("libibverbs-dev is not installed");
    }
    let mut program =
        String::from("#include <stddef.h>\n#include <sys/uio.h>\n#include <rdma/rdma_user_cm.h>\n");
    for layout in layouts() {
        let c = c_name(layout.name);
        writeln!(program, "_Static_assert(sizeof({c}) == {}, \"size of {c}\");", layout.size).unwrap();
        writeln!(program, "_Static_assert(_Alignof({c}) == {}, \"alignment of {c}\");", layout.align)
            .unwrap();
        for (field, offset) in layout.fields {
            let field = c_field(layout.name, field);
            writeln!(program, "_Static_assert(offsetof({c}, {field}) == {offset}, \"{c} {field}\");")
                .unwrap();
        }
    }
    for (size, c) in [
        (size_of::<SockaddrIn6>(), "struct sockaddr_in6"),
        (size_of::<SockaddrStorage>(), "struct __kernel_sockaddr_storage"),
        (size_of::<PathRec>(), "struct ib_user_path_rec"),
        (size_of::<KernAhAttr>(), "struct ib_uverbs_ah_attr"),
        (size_of::<QpAttr>(), "struct ib_uverbs_qp_attr"),
    ] {
        writeln!(program, "_Static_assert(sizeof({c}) == {size}, \"size of {c}\");").unwrap();
    }
    for (number, name) in NUMBERS {
        writeln!(program, "_Static_assert(RDMA_USER_CM_{name} == {number}, \"{name}\");").unwrap();
    }
    compile(&program);
}

/// `struct rdma_ucm_create_id_resp` for `CreateIdResponse`.
fn c_name(name: &str) -> String {
    match name {
        "Header" => return "struct rdma_ucm_cmd_hdr".to_owned(),
        "Part" => return "struct iovec".to_owned(),
        "PathRecData" => return "struct ib_path_rec_data".to_owned(),
        _ => {}
    }
    let mut c = String::from("struct rdma_ucm");
    for letter in name.replace("Response", "Resp").chars() {
        if letter.is_uppercase() {
            c.push('_');
        }
        c.extend(letter.to_lowercase());
    }
    c
}

fn c_field<'a>(structure: &str, field: &'a str) -> &'a str {
    match (structure, field) {
        ("Header", "command") => "cmd",
        ("Header", "input") => "in",
        ("Header", "output") => "out",
        ("Part", "base") => "iov_base",
        ("Part", "len") => "iov_len",
        (_, other) => other,
    }
}

const NUMBERS: [(u32, &str); 26] = [
    (command::CREATE_ID, "CMD_CREATE_ID"),
    (command::DESTROY_ID, "CMD_DESTROY_ID"),
    (command::BIND_IP, "CMD_BIND_IP"),
    (command::RESOLVE_IP, "CMD_RESOLVE_IP"),
    (command::RESOLVE_ROUTE, "CMD_RESOLVE_ROUTE"),
    (command::QUERY_ROUTE, "CMD_QUERY_ROUTE"),
    (command::CONNECT, "CMD_CONNECT"),
    (command::LISTEN, "CMD_LISTEN"),
    (command::ACCEPT, "CMD_ACCEPT"),
    (command::REJECT, "CMD_REJECT"),
    (command::DISCONNECT, "CMD_DISCONNECT"),
    (command::INIT_QP_ATTR, "CMD_INIT_QP_ATTR"),
    (command::GET_EVENT, "CMD_GET_EVENT"),
    (command::GET_OPTION, "CMD_GET_OPTION"),
    (command::SET_OPTION, "CMD_SET_OPTION"),
    (command::NOTIFY, "CMD_NOTIFY"),
    (command::JOIN_IP_MCAST, "CMD_JOIN_IP_MCAST"),
    (command::LEAVE_MCAST, "CMD_LEAVE_MCAST"),
    (command::MIGRATE_ID, "CMD_MIGRATE_ID"),
    (command::QUERY, "CMD_QUERY"),
    (command::BIND, "CMD_BIND"),
    (command::RESOLVE_ADDR, "CMD_RESOLVE_ADDR"),
    (command::JOIN_MCAST, "CMD_JOIN_MCAST"),
    (query::ADDR, "QUERY_ADDR"),
    (query::PATH, "QUERY_PATH"),
    (query::GID, "QUERY_GID"),
];
