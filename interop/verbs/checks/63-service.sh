# The service for all users (`userdma agent`): two users on one address of one network namespace, while it runs, and while it is
# killed and started again; and one that nobody trusts.
# shellcheck shell=bash disable=SC2034,SC2154
serve() { # [PREFIX...]   appends what it says to $work/service
    "${inside[@]}" "$@" "$userdma" agent 2>> "$work/service" & service=$!
}
# Waits until so many lines of the service match.
heard() { # COUNT PATTERN
    local i
    for i in $(seq 100); do
        [ "$(grep -c -- "$2" "$work/service")" -ge "$1" ] && return 0
        sleep 0.1
    done
    return 1
}
on_4791() { ! grep -Eq 'private port|is taken' "$1"; }
# Two users, each with a pair of programs on 127.0.0.1, at once. What is given is done when the clients run.
pairs() { # ITERATIONS [COMMAND...]
    local of names=(first second) users=(65534 65533) servers=() clients=() status=0 n=$1; shift
    for of in 0 1; do
        user=${users[of]} run -- ib_write_bw -F -n "$n" -s 65536 -p $((port + 1 + of)) > "$work/${names[of]}.server" 2>&1 &
        servers+=($!)
        listening $((port + 1 + of)) ${servers[of]} || status=1
    done
    for of in 0 1; do
        user=${users[of]} run -- ib_write_bw -F -n "$n" -s 65536 -p $((port + 1 + of)) 127.0.0.1 > "$work/${names[of]}" 2>&1 &
        clients+=($!)
    done
    port=$((port + 2))
    [ $# -eq 0 ] || "$@" || status=1
    wait "${servers[0]}" && wait "${servers[1]}" && wait "${clients[0]}" && wait "${clients[1]}" || status=1
    tail -n 40 "$work"/first* "$work"/second* "$work/service" > "$work/out"
    [ $status -eq 0 ] && size=65536 iterations=$n perf "$work/first" && size=65536 iterations=$n perf "$work/second" &&
        on_4791 "$work/first" && on_4791 "$work/second" && on_4791 "$work/first.server" && on_4791 "$work/second.server"
}
together_by_service() {
    pairs 3000 && [ "$(grep -c '^userdma agent: user 65534, process [0-9]*: device opened, slot [1-4] on 127.0.0.1' "$work/service")" -eq 2 ] &&
        [ "$(grep -c '^userdma agent: user 65533, .*: device opened' "$work/service")" -eq 2 ] && heard 4 'device closed'
}
# When all four devices are open.
killed_and_started() {
    heard 4 'device opened' && kill -KILL $service && { wait $service; true; } 2> /dev/null
    serve && heard 4 'device goes on'
}
untrusted() {
    : > "$work/service"
    serve setpriv --reuid 65534 --regid 65534 --clear-groups
    heard 1 'serving all users as user 65534' || return
    local squatter=$service status
    "${inside[@]}" "$userdma" agent > "$work/out" 2>&1; status=$?
    [ $status -eq 1 ] && grep -q "^userdma: somebody else has the service's name, process $squatter of user 65534" "$work/out" &&
        user=65533 run -- ibv_devinfo > "$work/out" 2>&1 && grep -q PORT_ACTIVE "$work/out" && ! grep -q 'user 65533' "$work/service"
    status=$?
    kill -KILL $squatter; wait $squatter 2> /dev/null
    return $status
}

if ! is_root; then
    skip "service: only root can be two users, and make a network namespace for them"
elif ! have ib_write_bw || ! have ip; then
    skip "service: perftest or iproute2 is not installed"
elif ! namespace "userdma-service-$$"; then
    skip "service: no network namespace can be made here"
else
    inside=(ip netns exec "userdma-service-$$")
    : > "$work/service"; serve
    if heard 1 'serving all users as user 0' && together_by_service; then pass "two users share an address by the service"; else bad "two users share an address by the service"; fi
    : > "$work/service"
    if pairs 30000 killed_and_started; then pass "the service is killed under traffic and started again"; else bad "the service is killed under traffic and started again"; fi
    kill -TERM $service; wait $service; status=$?
    cp "$work/service" "$work/out"
    if [ $status -eq 0 ] && heard 1 'stopping; 0 devices stay connected'; then pass "the service ends in order"; else bad "the service ends in order: $status"; fi
    if untrusted; then pass "a service of a user whom nobody trusts is not asked"; else bad "a service of a user whom nobody trusts is not asked"; fi
    inside=()
    remove_namespaces
fi
