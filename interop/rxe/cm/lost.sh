# The first message of a kind is lost where it is received. It comes again, and connection and end are made all the same.
# shellcheck shell=bash disable=SC2154
lost() {
    local we
    keeper
    for we in client server; do
        one_lost $we "REQ RTU DREQ" "REP DREP"
        full || continue
        one_lost $we REQ ""
        one_lost $we "" REP
        one_lost $we RTU ""
        one_lost $we DREQ ""
        one_lost $we "" DREP
        unusual $we
    done
    keeper_ends
}
one_lost() { # client|server (we) "MESSAGES THAT THE SERVER LOSES" "THE CLIENT"
    local messages
    # shellcheck disable=SC2086
    messages=$(echo $2 $3)
    meet_with_loss "$2" "$3" "lost: $messages" "$1" "$hears -b @ -d welcome -o accept" "$hears -s @ -w" \
        $'^ESTABLISHED 0\n^DISCONNECTED\n^end$' $'^ESTABLISHED 0 "welcome"\n^DISCONNECTED\n^end$'
}
unusual() { # client|server (we)
    local at_client=
    # The server has never had a connection then.
    meet_with_loss RTU "" "lost: RTU, and the client disconnects before it comes again" "$1" "$hears -b @ accept" \
        "$hears -s @ -x 0" $'^CONNECT_REQUEST 0\n^DISCONNECTED\n^end$' $'^ESTABLISHED 0\n^DISCONNECTED\n^end$'
    # The kernel takes a question that comes again for another one, which udaddy has no use for.
    [ "$1" = server ] && at_client=SIDR_REP
    meet_with_loss SIDR_REQ "$at_client" "lost: SIDR_REQ $at_client" "$1" "udaddy -b @" "udaddy -s @" \
        '^return status 0$' '^return status 0$'
    # Nothing is lost, but the server takes so long that the REQ comes again; the kernel asks for more time then (MRA).
    meet "a server that accepts after 7 s" "$1" "$hears -b @ -l 7 accept" "$hears -s @ -x 0" \
        $'^ESTABLISHED 0\n^DISCONNECTED\n^end$' $'^ESTABLISHED 0\n^DISCONNECTED\n^end$'
}
