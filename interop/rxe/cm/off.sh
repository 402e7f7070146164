# The guest as a whole loses its power, so this part is the last: whoever has something under way hears that nobody answers.
# shellcheck shell=bash disable=SC2034,SC2154
off() {
    local i why name silent='^COMPLETION transport retry counter exceeded'
    told=() patterns=() watched=()
    keeper
    watch_client "we are the client, sending" "-p 7201 -k" "-p 7201 accept" "$silent"
    watch_server "we are the server, sending" "-p 7202 -k accept" "-p 7202" "$silent"
    if full; then
        watch_server "we accept" "-p 7203 -l 9 accept" "-p 7203" '^UNREACHABLE'
        watch_client "we are the client, and disconnect" "-p 7204 -x 9" "-p 7204 accept" '^DISCONNECTED'
        watch_server "we are the server, and disconnect" "-p 7205 -x 9 accept" "-p 7205" '^DISCONNECTED'
        # The last, so that the kernel does not get the request a second time and asks for 69 s more (MRA).
        watch_client "we ask" "-p 7206" "-p 7206 -l 999 accept" '^UNREACHABLE'
    fi
    for i in "${!watched[@]}"; do
        until grep -Eq '^(ESTABLISHED|CONNECT_REQUEST|ROUTE_RESOLVED)' "$share/watched$i"; do sleep 0.05; done
    done
    sleep 2
    kill -KILL -- "-$(cat "$share/job/uml/pid")"
    for i in "${!watched[@]}"; do
        { wait "${watched[i]}"; } 2> /dev/null
        cp "$share/watched$i" "$share/ours"
        said=/dev/null why=$(shows "$share/ours" "${patterns[i]}"$'\n^end$')
        name="the guest is powered off: ${told[i]}"
        if [ -z "$why" ]; then fine "$name"; else bad "$name" "$why"; fi
    done
}
watch_client() { # NAME OUR-OPTIONS THEIR-OPTIONS PATTERNS
    guest "$hears -b $(there_at) $3 > /dev/null 2>&1 & sleep 2"; guest_ends
    watch "$1" "-s $(there_at) $2" "$4"
}
watch_server() { # NAME OUR-OPTIONS THEIR-OPTIONS PATTERNS
    watch "$1" "-b $(here_at) $2" "$4"
    sleep 1
    guest "$hears -s $(here_at) $3 > /dev/null 2>&1 &"; guest_ends
}
watch() { # NAME OPTIONS PATTERNS
    # shellcheck disable=SC2086
    timeout 120 "$userdma" run --device "$(here_at)" -- "$hears" $2 > "$share/watched${#watched[@]}" 2>&1 & watched+=($!)
    told+=("$1") patterns+=("$3")
}
