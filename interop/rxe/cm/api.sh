# The Rust API: Listener for the guest's rdma_client, Connection for its rdma_server, and both for a program that says
# something.
# shellcheck shell=bash disable=SC2154
api() {
    local connect=$from/userdma-connect status
    for family in 4 6; do
        listener rdma_client "rdma_client -s @ -p %" $' asks ""\n^closed$' '^rdma_client: end 0$'
        connection rdma_server "rdma_server -s @ -p %" $' says ""\n^disconnected$' '^rdma_server: end 0$'
    done
    family=4
    listener "private data" "$hears -s @ -d may-I -o -x 2" $' asks "may-I"\n^closed$' \
        $'^ESTABLISHED 0 "welcome"\n^DISCONNECTED\n^end$'
    connection "a refusal" "$hears -b @ -d not-today refuse" \
        'has refused the connection: "not-today"$' '^CONNECT_REQUEST 0 "may-I"'
}
listener() { # NAME CLIENT OUR-PATTERNS THEIR-PATTERNS
    local server
    "$connect" "$(here_at)" "$port" > "$share/ours" 2>&1 & server=$!
    until grep -qs ' listens$' "$share/ours" || ! kill -0 $server; do sleep 0.02; done
    guest "timeout 60 $(at "$(here_at)" "$2")"; guest_ends
    wait $server; status=$?
    met "Listener: $1" "$3" "$4"
}
connection() { # NAME SERVER OUR-PATTERNS THEIR-PATTERNS
    guest_serves "$(at "$(there_at)" "timeout 60 $2")"
    "$connect" "$(here_at)" "$(there_at)" "$port" > "$share/ours" 2>&1; status=$?
    guest_ends
    [ "$1" = "a refusal" ] && [ "$status" -eq 1 ] && status=0
    met "Connection: $1" "$3" "$4"
}
met() { # NAME OUR-PATTERNS THEIR-PATTERNS
    local why
    why=$(shows "$share/ours" "$2"; shows "$said" "$3")
    [ "$status/$theirs" = 0/0 ] || why="ours ended with $status, theirs with $theirs. $why"
    judge "$1, IPv$family" "$why"
}
