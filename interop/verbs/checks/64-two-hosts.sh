# Two network namespaces that a cable joins: default devices, IPv4 and IPv6, as root and as nobody.
# shellcheck shell=bash disable=SC2034,SC2154
if ! is_root; then
    skip "two hosts: only root can join network namespaces"
elif ! have ib_write_bw || ! have ibv_rc_pingpong || ! have ip; then
    skip "two hosts: perftest, ibverbs-utils or iproute2 is not installed"
elif ! join "userdma-a-$$" "userdma-b-$$"; then
    skip "two hosts: no network namespaces can be joined here: $(tail -1 "$work/out")"
else
    server_at=10.61.0.1 server_inside=(ip netns exec "userdma-a-$$") inside=(ip netns exec "userdma-b-$$")
    bytes=$((10000 * 100 * 2)) iterations=200 size=65536
    for user in 0 65534; do
        for gid in 0 1; do
            meet "two hosts, user $user: ibv_rc_pingpong -g $gid" pingpong "" "" ibv_rc_pingpong -g $gid -c -n 100 -s 10000
            meet "two hosts, user $user: ib_write_bw -x $gid" perf "" "" ib_write_bw -F -n 200 -s 65536 -x $gid
        done
        meet "two hosts, user $user: ib_write_bw" perf "" "" ib_write_bw -F -n 200 -s 65536
    done
    user=65534 server_at=127.0.0.1 server_inside=() inside=()
    remove_namespaces
fi
