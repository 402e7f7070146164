# The tools of ibverbs-utils.
# shellcheck shell=bash disable=SC2154
if have ibv_devinfo; then
    one "ibv_devices" '^[[:space:]]+roce_lo[[:space:]]+[0-9a-f]{16}' -- --device 127.0.34.1 -- ibv_devices
    one "ibv_devices without --device" '^[[:space:]]+roce_lo[[:space:]]+[0-9a-f]{16}' -- -- ibv_devices
    one "ibv_devinfo -v" '^hca_id:.roce_lo$' 'PORT_ACTIVE \(4\)' 'link_layer:.*Ethernet' 'max_qp:.*16382' \
        'ATOMIC_GLOB' 'GID\[ *0\]:.*127\.0\.34\.1, RoCE v2' -- --device 127.0.34.1 -- ibv_devinfo -v
    for size in 1 4096 1048576; do
        bytes=$((size * 100 * 2))
        pair "ibv_rc_pingpong, $size bytes" pingpong ibv_rc_pingpong -d roce_lo -g 0 -c -n 100 -s $size -m 4096
        pair "ibv_rc_pingpong -e, $size bytes" pingpong ibv_rc_pingpong -d roce_lo -g 0 -c -n 100 -s $size -m 4096 -e
    done
    bytes=$((10000 * 100 * 2))
    for mtu in 256 512 1024 2048; do
        pair "ibv_rc_pingpong, MTU $mtu" pingpong ibv_rc_pingpong -d roce_lo -g 0 -c -n 100 -s 10000 -m $mtu
    done
    pair "ibv_rc_pingpong -N (ibv_wr_*)" pingpong ibv_rc_pingpong -d roce_lo -g 0 -c -n 100 -s 10000 -N
    # Two processes with one address: the second is told what to do.
    run --device 127.0.34.9 -- ibv_rc_pingpong -d roce_lo -g 0 -p 18599 > "$work/server" 2>&1 & server=$!
    listening 18599 $server
    if run --device 127.0.34.9 -- ibv_devinfo > "$work/out" 2>&1; then
        bad "a taken address"
    elif grep -q 'each process needs an address of its own: userdma run --device' "$work/out"; then
        pass "a taken address is told, and what to do"
    else
        bad "a taken address"
    fi
    kill $server; wait $server 2> /dev/null
else
    skip "ibverbs-utils is not installed"
fi
