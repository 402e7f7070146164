# Connections between two network namespaces, IPv4 and IPv6, as root and as nobody; and libfabric, whose endpoints on loopback
# addresses do not say where they listen. After 90-cm.sh, whose functions it takes.
# shellcheck shell=bash disable=SC2034,SC2154
if ! is_root; then
    skip "connections between two hosts: only root can join network namespaces"
elif ! have rping || ! have ip; then
    skip "connections between two hosts: rdmacm-utils or iproute2 is not installed"
elif ! join "userdma-a-$$" "userdma-b-$$"; then
    skip "connections between two hosts: no network namespaces can be joined here: $(tail -1 "$work/out")"
else
    server_inside=(ip netns exec "userdma-a-$$") inside=(ip netns exec "userdma-b-$$")
    cm_server="" cm_client="" cm_space=tcp
    for user in 0 65534; do
        for cm_at in 10.61.0.1 fd61::1; do
            cm "two hosts, user $user: rping to $cm_at" '' '^ping data: rdma-ping-99: ' \
                rping -s -a @ -p % -C 100 -V -- rping -c -a @ -p % -C 100 -V -v
            cm "two hosts, user $user: rstream to $cm_at" '' ' 1m ' rstream -b @ -p % -T v -- rstream -s @ -p % -T v
        done
    done
    cm_at=10.61.0.1
    if have fi_pingpong; then
        # Its server asks for 127.0.0.1, and would get the device of that.
        cm_space=sockets cm_server=10.61.0.1 cm_client=10.61.0.2
        for size in 8 65536; do
            cm "two hosts: fi_pingpong, $size bytes" '' '^[0-9]+[kmg]? +[0-9]' fi_pingpong -p verbs -e msg -B % -I 100 -S $size -c -- \
                fi_pingpong -p verbs -e msg -P % -I 100 -S $size -c @
        done
        cm_space=tcp
    else
        skip "fi_pingpong (libfabric-bin) is not installed"
    fi
    user=65534 server_inside=() inside=()
    remove_namespaces
fi
