# Groups: rules of attaching and joining, and mckey of rdmacm-utils: receivers of a group on one host, and on two.
# shellcheck shell=bash disable=SC2034,SC2154
group_program() { # NAME ARGUMENT
    if ! have cc || [ ! -e /usr/include/rdma/rdma_user_cm.h ]; then
        skip "$1.c: cc or libibverbs-dev is not installed"
    elif cc -Wall -Wextra -Werror -O1 -o "$work/$1" "$here/$1.c" -libverbs -lpthread > "$work/out" 2>&1; then
        chmod a+rx "$work/$1"
        one "$1.c" '^all is well$' -- --device 127.73.50.1 -- "$work/$1" "$2"
    else
        bad "$1.c does not compile"
    fi
}
group_program multicast 239.73.50.1
group_program ucma-groups 127.73.50.1

# Receivers at their addresses (with / before it: in the other namespace), then a sender at the last; each receiver ends when it has
# all datagrams.
mckey() { # NAME GROUP ADDRESS...
    # One that misses a datagram waits for ever.
    local limit=100
    local name=$1 group=$2 to pids=() logs=() pid log status=0 i own=("${inside[@]}"); shift 2
    rm -f "$work"/log/mckey*
    while [ $# -gt 1 ]; do
        to=${1#/} i=${#pids[@]}
        [[ $1 == /* ]] && inside=("${server_inside[@]}")
        # What it says is read while it runs.
        run --device "$to" -- stdbuf -oL mckey -m "$group" -b "$to" -C 20 > "$work/log/mckey$i" 2>&1 & pids+=($!)
        inside=("${own[@]}") logs+=("$work/log/mckey$i"); shift
    done
    for log in "${logs[@]}"; do
        for i in $(seq 600); do grep -qs '^receiving' "$log" && break; sleep 0.1; done
    done
    run --device "$1" -- mckey -m "$group" -b "$1" -s -C 20 > "$work/out" 2>&1 || status=1
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    if [ $status -eq 0 ] && [ "$(grep -l '^return status 0$' "${logs[@]}" | wc -l)" -eq ${#logs[@]} ]; then
        pass "$name"
    else
        tail -n 5 "${logs[@]}" >> "$work/out"; bad "$name"
    fi
}
[ -d "$work/log" ] || mkdir -m 777 "$work/log"
if ! have mckey; then
    skip "rdmacm-utils is not installed"
else
    mckey "mckey, three receivers" 239.73.50.2 127.73.50.1 127.73.50.1 127.73.50.2 127.73.50.3
    if ! is_root; then
        skip "mckey of two hosts: only root can join network namespaces"
    elif ! have ip || ! join "userdma-a-$$" "userdma-b-$$"; then
        skip "mckey of two hosts: no network namespaces can be joined here: $(tail -1 "$work/out")"
    else
        server_inside=(ip netns exec "userdma-a-$$") inside=(ip netns exec "userdma-b-$$")
        for user in 0 65534; do
            mckey "two hosts, user $user: mckey, IPv4" 239.73.50.3 /10.61.0.1 /10.61.0.1 10.61.0.2 10.61.0.2
            for group in ff05::73:50 ff0e::73:50; do
                mckey "two hosts, user $user: mckey, $group" $group /fd61::1 /fd61::1 fd61::2 fd61::2
            done
        done
        user=65534 server_inside=() inside=()
        remove_namespaces
    fi
fi
