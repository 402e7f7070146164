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
    together "ibv_rc_pingpong, one address" pingpong ibv_rc_pingpong -g 0 -c -n 100 -s 10000
    together "ibv_rc_pingpong -e, one address" pingpong ibv_rc_pingpong -g 0 -c -n 100 -s 10000 -e
    meet "ibv_rc_pingpong, nothing said of devices" pingpong "" "" ibv_rc_pingpong -g 0 -c -n 100 -s 10000
else
    skip "ibverbs-utils is not installed"
fi
