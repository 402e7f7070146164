# Two users in one network namespace, each with a pair of programs on the same address; and the private port by choice.
# shellcheck shell=bash disable=SC2034,SC2154
userless() { ! grep -q '^userdma:' "$1"; }
# The warning of user 65533, whose private port is 16384 + 65533 mod 16384.
blames() { grep -Eq 'UDP port 4791 is taken \(127\.0\.0\.1 belongs to a program of user 65534\); using private port 32765' "$1"; }

side_by_side() {
    local of names=(first second) users=(65534 65533) servers=() clients=() status=0
    for of in 0 1; do
        user=${users[of]} run -- ib_write_bw -F -n 3000 -s 65536 -p $((port + 1 + of)) > "$work/${names[of]}.server" 2>&1 &
        servers+=($!)
        listening $((port + 1 + of)) ${servers[of]} || status=1
    done
    for of in 0 1; do
        user=${users[of]} run -- ib_write_bw -F -n 3000 -s 65536 -p $((port + 1 + of)) 127.0.0.1 > "$work/${names[of]}" 2>&1 &
        clients+=($!)
    done
    wait "${servers[0]}" && wait "${servers[1]}" && wait "${clients[0]}" && wait "${clients[1]}" || status=1
    port=$((port + 2))
    tail -n 40 "$work"/first* "$work"/second* > "$work/out"
    [ $status -eq 0 ] && size=65536 iterations=3000 perf "$work/first" && size=65536 iterations=3000 perf "$work/second" &&
        userless "$work/first" && userless "$work/first.server" && blames "$work/second" && blames "$work/second.server"
}
# 32766 is the private port of user 65534; while the server waits, it must have that and not 4791.
on_private_port() { grep -Eq ':7FFE ' "$work/udp" && ! grep -Eq ':12B7 ' "$work/udp"; }
by_choice() {
    local server status
    port=$((port + 1))
    export USERDMA_PRIVATE=1
    run -- ib_write_bw -F -n 200 -s 65536 -p $port > "$work/server" 2>&1 & server=$!
    listening $port $server && "${inside[@]}" cat /proc/net/udp > "$work/udp"
    run -- ib_write_bw -F -n 200 -s 65536 -p $port 127.0.0.1 > "$work/out" 2>&1; status=$?
    unset USERDMA_PRIVATE
    wait $server && [ $status -eq 0 ] && size=65536 iterations=200 perf "$work/out" && userless "$work/out" && on_private_port
}

if ! is_root; then
    skip "two users: only root can be two, and make a network namespace for them"
elif ! have ib_write_bw || ! have ip; then
    skip "two users: perftest or iproute2 is not installed"
elif ! namespace "userdma-users-$$"; then
    skip "two users: no network namespace can be made here"
else
    inside=(ip netns exec "userdma-users-$$")
    if side_by_side; then pass "two users side by side on one address"; else bad "two users side by side on one address"; fi
    if by_choice; then pass "USERDMA_PRIVATE=1"; else bad "USERDMA_PRIVATE=1"; fi
    USERDMA_PRIVATE=perhaps run -- ibv_devinfo > "$work/out" 2>&1
    if grep -q 'USERDMA_PRIVATE is `perhaps`: 0 or 1 is wanted' "$work/out"; then pass "USERDMA_PRIVATE is checked"; else bad "USERDMA_PRIVATE is checked"; fi
    inside=()
    remove_namespaces
fi
