# Unmodified programs, each with us as the client and as the server.
# shellcheck shell=bash disable=SC2034,SC2154
programs() {
    local good='^return status 0$' tool
    for family in 4 6; do
        both "rping -C 100" "rping -s -a @ -C 100 -V -v" "rping -c -a @ -C 100 -V -v" \
            'ping data: rdma-ping-98: ' 'ping data: rdma-ping-99: '
        sizes
        both "ucmatose -c 10" "ucmatose -b @ -p % -c 10 -C 20 -S 3000" "ucmatose -s @ -p % -c 10 -C 20 -S 3000" "$good" "$good"
        both "udaddy -c 3" "udaddy -b @ -c 3 -C 10 -S 1000" "udaddy -s @ -c 3 -C 10 -S 1000" "$good" "$good"
        both rdma_client "rdma_server -s @ -p %" "rdma_client -s @ -p %" '^rdma_server: end 0$' '^rdma_client: end 0$'
        streams rstream b
        streams riostream b
        full || continue
        streams rstream n v
        streams riostream n v
        both "rping -q" "rping -s -a @ -C 20 -V -q" "rping -c -a @ -C 20 -V -v -q" '' 'ping data: rdma-ping-19: '
        both "ucmatose -m" "ucmatose -b @ -p % -c 4 -m" "ucmatose -s @ -p % -c 4 -m" "$good" "$good"
    done
    family=4
    perf 65536 ib_write_bw -s 65536
    full || return
    for tool in ib_send ib_read; do perf 65536 ${tool}_bw -s 65536; done
    for tool in ib_send ib_write ib_read; do perf 64 ${tool}_lat -s 64; done
    perf 8 ib_atomic_bw
    perf 8 ib_atomic_lat
}
sizes() {
    local size sizes=65535
    full && sizes="64 4096 65535"
    for size in $sizes; do
        both "rping -S $size" "rping -s -a @ -C 20 -V -S $size" "rping -c -a @ -C 20 -V -v -S $size" \
            '' 'ping data: rdma-ping-19: '
    done
}
streams() { # PROGRAM MODE...
    local program=$1 mode options="-p % -S 16384 -C 10 -I 20"; shift
    for mode in "$@"; do
        both "$program -T $mode" "$program -T $mode -b @ $options" "$program -T $mode -s @ $options" \
            '' '^custom +16k +10 +20 '
    done
}
# perftest over the connection manager: a line with the size, the number of messages, and figures; for its own the guest's clock
# is too uneven.
perf() { # SIZE TOOL OPTIONS...
    local line="^ *$1 +100 +" command; shift
    command="$* -R -F -n 100 -p %"
    perf_try client "$* -R" "$command" "$command @" '' "${line}[0-9.]+"
    perf_try server "$* -R" "$command" "$command @" '' "$line([0-9.]+|inf)"
}
# Many times if it is perftest's own fault: its client asks for a second connection before its server listens for that, as a
# rule on a busy machine; and it refuses a report if its clock runs unevenly, which the guest's does often.
perf_try() { # client|server (we) NAME SERVER CLIENT SERVER-PATTERNS CLIENT-PATTERNS
    local _ before=$failed
    for _ in {1..30}; do
        failed=$before
        meet "$2" "$1" "${@:3}" > "$share/met"
        grep -q ^FAILED "$share/met" || break
        grep -Eqs 'CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\.|produce a report' "$share/ours" "$said" || break
    done
    cat "$share/met"
}
