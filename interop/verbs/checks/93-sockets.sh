# Sockets over RDMA: datagrams of rsockets, and TCP programs under librspreload, on one machine and between two network
# namespaces. After 90-cm.sh, whose functions it takes.
# shellcheck shell=bash disable=SC2034,SC2154,SC2016
sockets_preload=$(find /usr/lib -name librspreload.so -path '*rsocket*' 2> /dev/null | head -1)
# A loopback address is reached from 127.0.0.1, to which the client binds, so that must be its device. Its peers' addresses are LIDs.
sockets_udpong() { # WHERE
    local mode
    cm_space=datagrams cm_options=(--lids) cm_env=(stdbuf -oL)
    # How many have arrived, of 50, or of 100 that are echoed: datagrams may be lost.
    for mode in b n a e; do
        cm "udpong -T $mode, $1" '^client login from ' '^custom +1000 +[1-9][0-9]* +' endless \
            udpong -b @ -p % -T $mode -- udpong -s @ -p % -T $mode -S 1000 -C 50
    done
    cm_space=tcp cm_options=() cm_env=()
}
# Three connections: with a fifth socket at a time rsocket.c cm_svc_run() of rdma-core before 55 looks at memory that it has given
# back (mended by 24061f015).
sockets_tcp() { # WHERE
    cm_env=(sh -c 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"' "$sockets_preload")
    for _ in 1 2 3; do
        cm "a TCP program under librspreload, $1" '^900000 bytes over 3 connections$' '^900000 bytes over 3 connections$' \
            "$work/tcp" serve @ % 3 -- "$work/tcp" ask @ % 3
    done
    cm_env=()
}
sockets_all() { # WHERE
    if have udpong; then sockets_udpong "$1"; else skip "udpong (rdmacm-utils) is not installed"; fi
    if [ -x "$work/tcp" ]; then sockets_tcp "$1"; fi
}

if [ -z "$sockets_preload" ] || ! have cc; then
    skip "TCP programs under librspreload: that (librdmacm1) or cc is not installed"
elif cc -Wall -Wextra -Werror -O1 -o "$work/tcp" "$here/tcp.c" -lpthread > "$work/out" 2>&1; then
    chmod a+rx "$work/tcp"
else
    bad "tcp.c does not compile"
fi
cm_at=127.0.0.1 cm_server=127.0.0.1 cm_client=127.0.0.1
if have udpong; then sockets_udpong "one address"; else skip "udpong (rdmacm-utils) is not installed"; fi
cm_at=127.72.8.1 cm_server=127.72.8.1 cm_client=127.72.8.2
if [ -x "$work/tcp" ]; then sockets_tcp "two addresses"; fi
if ! is_root || ! have ip; then
    skip "sockets between two hosts: only root can join network namespaces, with iproute2"
elif ! join "userdma-a-$$" "userdma-b-$$"; then
    skip "sockets between two hosts: no network namespaces can be joined here: $(tail -1 "$work/out")"
else
    server_inside=(ip netns exec "userdma-a-$$") inside=(ip netns exec "userdma-b-$$")
    cm_at=10.61.0.1 cm_server=10.61.0.1 cm_client=10.61.0.2
    sockets_all "two hosts"
    server_inside=() inside=()
    remove_namespaces
fi
