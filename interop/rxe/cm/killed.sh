# One side is killed (SIGKILL), connected or before the server accepts. The other hears of it.
# shellcheck shell=bash disable=SC2154
killed() {
    local asked='^(CONNECT_REQUEST|ROUTE_RESOLVED)' made='^ESTABLISHED' we silent='^COMPLETION transport retry counter exceeded'
    for family in 4 6; do
        keeper
        for we in client server; do
            dies theirs $we "connected" "-o accept" "-o" "$made" '^DISCONNECTED 0'
            dies ours $we "connected" "-o accept" "-o" "$made" '^DISCONNECTED 0'
        done
        # A server that is about to accept is not told, neither by its kernel nor by our device: it sees when it does.
        dies theirs client "before it accepts" "-l 9 accept" "" "$asked" '^REJECTED 28'
        dies theirs server "before we accept" "-l 2 accept" "" "$asked" '^ACCEPT Invalid argument'
        dies ours client "before it accepts" "-l 2 accept" "" "$asked" '^REJECTED 6'
        dies ours server "before we accept" "-l 9 accept" "" "$asked" '^REJECTED 8'
        full || break
    done
    family=4
    keeper_ends
    # Nobody is left who could speak for it.
    dies ours client "alone, connected" "-k accept" "" "$made" "$silent"
    dies ours server "alone, connected" accept -k "$made" "$silent"
    full || return
    dies ours client "alone, before it accepts" "-l 2 accept" "" "$asked" '^UNREACHABLE'
    dies ours server "alone, before we accept" "-l 9 accept" "" "$asked" '^UNREACHABLE'
}
# Runs both until each shows a pattern, and kills one; the other must show the last pattern and end.
dies() { # theirs|ours client|server (we) NAME "SERVER'S OPTIONS" "CLIENT'S OPTIONS" PATTERN LAST-PATTERN
    local name="$1 is killed, $3, we are the $2, IPv$family" pattern=$6 ours_is
    if [ "$2" = client ]; then
        guest_plays "-b $(there_at) $4" "$pattern"
        until [ -e "$share/$n.listens" ]; do sleep 0.02; done
        # shellcheck disable=SC2086
        ours 100 "$hears" -s "$(there_at)" $5 & ours_is=$!
    else
        # shellcheck disable=SC2086
        ours 100 "$hears" -b "$(here_at)" $4 & ours_is=$!
        ours_listens $ours_is
        guest_plays "-s $(here_at) $5" "$pattern"
    fi
    until { [ -e "$share/$n.ready" ] && grep -Eq "$pattern" "$share/ours"; } || [ -e "$share/$n.status" ]; do sleep 0.02; done
    sleep 0.2
    if [ "$1" = theirs ]; then
        : > "$share/$n.kill"
        wait $ours_is; guest_ends
        judge "$name" "$(shows "$share/ours" "$7"$'\n^end$')"
    else
        stop $ours_is KILL; { wait $ours_is; } 2> /dev/null
        guest_ends
        judge "$name" "$(shows "$said" "$7"$'\n^end$')"
    fi
}
# hears in the guest, which tells when it listens and when it shows the pattern, and is killed when there is a file N.kill.
guest_plays() { # OPTIONS PATTERN
    guest "n=$((n + 1)) s=$share
        timeout -s KILL 100 $hears $1 > /run/\$n 2>&1 & p=\$!
        until rdma resource show cm_id | grep -q 'state LISTEN.*:$port ' || grep -q . /run/\$n || ! kill -0 \$p 2> /dev/null; do
            sleep 0.02; done
        : > \$s/\$n.listens
        until grep -Eq '$2' /run/\$n || ! kill -0 \$p 2> /dev/null; do sleep 0.02; done
        : > \$s/\$n.ready
        while [ ! -e \$s/\$n.kill ] && kill -0 \$p 2> /dev/null; do sleep 0.02; done
        pkill -KILL -P \$p; wait \$p; cat /run/\$n"
}
