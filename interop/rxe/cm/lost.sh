# Messages are lost where they are received, in most cases the first of a kind. They come again, and connection and end are made
# all the same.
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
        many $we
    done
    keeper_ends
}
one_lost() { # client|server (we) "MESSAGES THAT THE SERVER LOSES" "THE CLIENT"
    meet_with_loss "$2" "$3" "lost: $2${2:+${3:+ }}$3" "$1" "$hears -b @ -d welcome -o accept" "$hears -s @ -w" \
        $'^ESTABLISHED 0\n^DISCONNECTED\n^end$' $'^ESTABLISHED 0 "welcome"\n^DISCONNECTED\n^end$'
}
unusual() { # client|server (we)
    local at_client=
    # The server has never had a connection then.
    meet_with_loss RTU "" "lost: RTU, and the client disconnects before it comes again" "$1" "$hears -b @ accept" \
        "$hears -s @ -x 0" $'^CONNECT_REQUEST 0\n^DISCONNECTED\n^end$' $'^ESTABLISHED 0\n^DISCONNECTED\n^end$'
    # The kernel takes a question that comes again for another one, which udaddy has no use for.
    [ "$1" = server ] && at_client=SIDR_REP
    meet_with_loss SIDR_REQ "$at_client" "lost: SIDR_REQ${at_client:+ $at_client}" "$1" "udaddy -b @" "udaddy -s @" \
        '^return status 0$' '^return status 0$'
    # Nothing is lost, but the server takes so long that the REQ comes again; the kernel asks for more time then (MRA).
    meet "a server that accepts after 7 s" "$1" "$hears -b @ -l 7 accept" "$hears -s @ -x 0" \
        $'^ESTABLISHED 0\n^DISCONNECTED\n^end$' $'^ESTABLISHED 0\n^DISCONNECTED\n^end$'
}
# Fifty connections at once, while both sides lose each fifth message, whichever it is.
many() { # client|server (we)
    local name="lost: a fifth of all, 50 connections, we are the $1, IPv4" server status output why
    local fifth="$to_qp1 numgen random mod 5 < 1"
    guest "$(drops eth0 "$fifth")"; guest_ends; bash -c "$(drops peer0 "$fifth")"
    # Its server does not end.
    if [ "$1" = client ]; then
        guest_serves "timeout 200 cmtime -b $(there_at) -p $port -c 50"
        ours 150 cmtime -s "$(there_at)" -p "$port" -c 50; status=$? output=$share/ours
        : > "$share/$n.stop"; guest_ends
    else
        ours 200 cmtime -b "$(here_at)" -p "$port" -c 50 & server=$!
        ours_listens $server
        guest "timeout 150 cmtime -s $(here_at) -p $port -c 50"; guest_ends
        status=$theirs output=$said
        stop $server; wait $server
    fi
    guest "$lost"; guest_ends; bash -c "$lost" > "$share/lost"
    why=$(shows "$output" $'^disconnect +: +[0-9.]\n^destroy +: ')
    [ "$status" -eq 0 ] || why="cmtime ended with $status. $why"
    [ "$(cat "$share/lost" "$said" | grep -c '^lost [1-9]')" -eq 2 ] || why+="not both have lost something"
    said=/dev/null
    judge "$name" "$why"
}
