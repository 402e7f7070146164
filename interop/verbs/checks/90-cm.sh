# Programs of librdmacm: the tools of rdmacm-utils, perftest's -R, qperf, fio, and what wrong commands to the device are answered.
# shellcheck shell=bash disable=SC2034,SC2154
cm_port=7100
# Where the server listens, on which device, and the client's device; the port space by which they meet (`sockets`: the kernel's
# TCP; `datagrams`: its UDP).
cm_at=127.44.0.1 cm_server=127.44.0.1 cm_client=127.44.0.2 cm_space=tcp
# What goes before commands, options of `userdma run`, and how often a client is run again that was unlucky.
cm_env=() cm_options=() cm_attempts=0
cm_run() { # DEVICE COMMAND...
    local device=$1; shift
    run "${cm_options[@]}" ${device:+--device "$device"} -- "${cm_env[@]}" "$@"
}

# Ends what runs in the background as long as somebody wants it.
cm_stop() { # PID
    local child
    # shellcheck disable=SC2013
    for child in $(cat "/proc/$1/task/$1/children" 2> /dev/null); do kill "$child" 2> /dev/null; done
    wait "$1" 2> /dev/null
}

# A server and a client: both must end well and print what their patterns say. In commands @ is the server's address, % the port.
# A server that is `endless` is ended.
cm() { # NAME "PATTERN OF THE SERVER'S OUTPUT" "OF THE CLIENT'S" [endless] SERVER... -- CLIENT...
    local all=("$@") name=$1 server_pattern=$2 client_pattern=$3 endless="" command=() server s1 s2; shift 3
    if [ "$1" = endless ]; then endless=1; shift; fi
    cm_port=$((cm_port + 1))
    while [ "$1" != -- ]; do command+=("$(cm_word "$1")"); shift; done
    shift
    local client_inside=("${inside[@]}")
    [ ${#server_inside[@]} -eq 0 ] || inside=("${server_inside[@]}")
    rm -f "$work/log/server"
    USERDMA_LOG=info USERDMA_LOG_FILE=$work/log/server cm_run "$cm_server" "${command[@]}" > "$work/server" 2>&1 & server=$!
    cm_ready $server; s1=$?
    inside=("${client_inside[@]}")
    if [ $s1 -ne 0 ]; then
        { echo "-- nobody listens"; tail -12 "$work/server"; } > "$work/out"; bad "$name"; cm_stop $server; return
    fi
    command=()
    while [ $# -gt 0 ]; do command+=("$(cm_word "$1")"); shift; done
    cm_run "$cm_client" "${command[@]}" > "$work/out" 2>&1; s2=$?
    if [ "$cm_attempts" -gt 0 ] && cm_was_unlucky $s2; then
        cm_stop $server
        cm_attempts=$((cm_attempts - 1)) cm "${all[@]}"; return
    fi
    if [ -n "$endless" ] || [ $s2 -ne 0 ]; then cm_stop $server; s1=0; else wait $server; s1=$?; fi
    # Its fault, over any device: rping.c main() destroys the channel that cm_thread() is about to ask, which rdma-core's f3ae6534a
    # ("rping: terminate CM event thread before exiting") ends.
    if [ "${command[0]}" = rping ] && grep -q '^rdma_get_cm_event: Bad file descriptor$' "$work/server"; then s1=0; fi
    if [ $s1 -ne 0 ] || [ $s2 -ne 0 ]; then
        { echo "-- server, status $s1; client's status $s2"; tail -12 "$work/server"; } >> "$work/out"; bad "$name"; return
    fi
    if grep -Eq -- "$server_pattern" "$work/server" && grep -Eq -- "$client_pattern" "$work/out"; then
        pass "$name"
    else
        { echo "-- server"; tail -12 "$work/server"; } >> "$work/out"; bad "$name: the output is not right"
    fi
}
# Its fault, over any device: in create_rdma_cm_connection() the client asks right after a hand-shake, behind which the server has
# rdma_listen() still before it; it means to try ten times, but with identifiers that it has destroyed (mended by perftest's 3d9d8d0).
cm_was_unlucky() { # STATUS OF THE CLIENT
    [ "$1" -ne 0 ] && grep -Eq 'CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\.' "$work/out"
}
cm_word() {
    local word=$1
    [[ $word == @ ]] && word=$cm_at
    [[ $word == % ]] && word=$cm_port
    printf '%s\n' "$word"
}
# Until the server listens: by the connection manager, which its log tells, or where some programs meet first.
cm_ready() { # PID
    local i
    for i in $(seq 200); do
        case $cm_space in
            tcp | udp) grep -qs ' listens at ' "$work/log/server" && return ;;
            datagrams) "${inside[@]}" grep -qi "$(printf ':%04X' $cm_port) 0*:0000 07" /proc/net/udp && return ;;
            sockets) listening $cm_port "$1"; return ;;
        esac
        kill -0 "$1" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Programs of rsockets, which print a line for each size.
cm_stream() { # NAME COMMAND...
    cm "$1" '' '^custom +16k +10 +50 ' "${@:2}" -b @ -p % -S 16384 -C 10 -I 50 -- "${@:2}" -s @ -p % -S 16384 -C 10 -I 50
}
cm_rping() { # NAME OPTIONS...
    cm "$1" '' '^ping data: rdma-ping-99: ' rping -s -a @ -p % "${@:2}" -- rping -c -a @ -p % "${@:2}" -v
}

# What every way to meet is tried with: two addresses, one, IPv6, and nothing said of devices.
cm_tools() { # WHERE
    local size mode
    # What is written to standard output and error may mix.
    cm "rping -v -C 1000, $1" 'ping data: rdma-ping-998: ' '^ping data: rdma-ping-999: ' \
        rping -s -a @ -p % -C 1000 -V -v -- rping -c -a @ -p % -C 1000 -V -v
    for size in 100 4096 65535; do
        cm_rping "rping -S $size, $1" -C 100 -S $size -V
    done
    cm "ucmatose, 20 connections, $1" '^return status 0$' '^return status 0$' \
        ucmatose -b @ -p % -c 20 -C 50 -S 3000 -- ucmatose -s @ -p % -c 20 -C 50 -S 3000
    cm "ucmatose -m, $1" '^return status 0$' '^return status 0$' \
        ucmatose -b @ -p % -c 4 -m -- ucmatose -s @ -p % -c 4 -m
    cm "rdma_client, $1" '^rdma_server: end 0$' '^rdma_client: end 0$' \
        rdma_server -s @ -p % -- rdma_client -s @ -p %
    for mode in b n r v; do
        cm_stream "rstream -T $mode, $1" rstream -T $mode
    done
    # Its fault, over any device: common.c do_poll() makes POLLHUP (16) an error, and rsocket.c rs_poll_rs() tells it together with
    # the last data if the peer, who has all of ours, has called rshutdown() meanwhile.
    # shellcheck disable=SC2016
    cm "rstream -T a, $1" '^custom +16k +10 +50 ' '' rstream -T a -b @ -p % -S 16384 -C 10 -I 50 -- \
        sh -c 'rstream "$@"; status=$?; [ $status -eq 16 ] || exit $status' sh -T a -s @ -p % -S 16384 -C 10 -I 50
    for mode in a b n v; do
        cm_stream "riostream -T $mode, $1" riostream -T $mode
    done
}

mkdir -m 777 "$work/log"
if ! have cc || [ ! -e /usr/include/rdma/rdma_user_cm.h ]; then
    skip "commands of the connection manager: cc or libibverbs-dev is not installed"
elif cc -Wall -Wextra -Werror -O1 -o "$work/ucma" "$here/ucma.c" -libverbs -lpthread > "$work/out" 2>&1; then
    chmod a+rx "$work/ucma"
    one "ucma.c" '^all is well$' -- --device 127.44.1.1 -- "$work/ucma" 127.44.1.1
else
    bad "ucma.c does not compile"
fi
if have rping; then
    cm_tools "two addresses"
    cm_client=$cm_server
    cm_tools "one address"
    cm_at=::1 cm_server=::1 cm_client=::1
    cm_tools IPv6
    cm_at=127.0.0.1 cm_server="" cm_client=""
    cm_rping "rping, nothing said of devices" -C 100 -V
    cm_at=127.44.0.1 cm_server=127.44.0.1 cm_client=127.44.0.2
    cm_rping "rping -q" -C 100 -V -q
    cm "rstream, all sizes" '' '^1m_bw +1m ' rstream -b @ -p % -T b -- rstream -s @ -p % -T b
    cm "cmtime, 1000 connections" '' '^disconnect +: +[0-9.]+ ' \
        endless cmtime -b @ -p % -c 1000 -- cmtime -s @ -b 127.44.0.2 -p % -c 1000
else
    skip "rdmacm-utils is not installed"
fi
