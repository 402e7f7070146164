# What is refused: by the kernel or our agent, because nobody listens, and by a program, which says something.
# shellcheck shell=bash disable=SC2154
refused() {
    for family in 4 6; do
        keeper
        nobody "ucmatose -s @ -p %" 'RDMA_CM_EVENT_REJECTED, error: 8$'
        nobody "rdma_client -s @ -p %" '^rdma_connect: Connection refused$'
        nobody "udaddy -s @" 'RDMA_CM_EVENT_UNREACHABLE, error: 1$'
        both "a listener refuses and says why" "$hears -b @ -d not-today refuse" "$hears -s @ -d may-I" \
            '^CONNECT_REQUEST 0 "may-I"$' '^REJECTED 28 "not-today"$'
    done
    family=4
    keeper_ends
}
# The client alone; its status is its own affair.
nobody() { # CLIENT PATTERN
    local name="nobody listens: ${1%% *}"
    ours 30 bash -c "$(at "$(there_at)" "$1")"
    said=/dev/null
    judge "$name, we are the client, IPv$family" "$(shows "$share/ours" "$2")"
    guest "timeout 30 $(at "$(here_at)" "$1")"; guest_ends
    judge "$name, we are the server, IPv$family" "$(shows "$said" "$2")"
}
