# ucx_perftest over verbs alone: a server and a client for each test. With "-m host" and data checked by its own sequence numbers.
# shellcheck shell=bash disable=SC2154
ucx() { # TRANSPORTS TEST SIZE
    local name="ucx_perftest $2, $3 bytes, $1" env server s1 s2
    port=$((port + 1))
    env=(env UCX_TLS="$1" UCX_NET_DEVICES=roce_lo:1 UCX_WARN_UNUSED_ENV_VARS=n)
    plainly timeout $limit "${env[@]}" "$userdma" run --device 127.0.42.1 -- ucx_perftest -p $port > "$work/server" 2>&1 & server=$!
    if ! listening $port $server; then
        cp "$work/server" "$work/out"; bad "$name: the server does not listen"; kill $server 2> /dev/null; wait $server; return
    fi
    plainly timeout $limit "${env[@]}" "$userdma" run --device 127.0.42.2 -- ucx_perftest -p $port 127.0.0.1 -t "$2" -s "$3" -n 2000 -w 100 \
        > "$work/out" 2>&1; s2=$?
    wait $server; s1=$?
    if [ $s1 -eq 0 ] && [ $s2 -eq 0 ] && grep -Eq '^Final: +2000 ' "$work/out"; then pass "$name"; return; fi
    { echo "-- server, status $s1; client's status $s2"; tail -12 "$work/server"; } >> "$work/out"; bad "$name"
}
if have ucx_perftest; then
    for test in tag_lat tag_bw ucp_put_bw ucp_get ucp_am_bw; do
        for size in 8 4096 262144; do
            ucx rc_verbs,ud_verbs,self $test $size
        done
    done
    for test in ucp_add ucp_fadd ucp_swap ucp_cswap; do ucx rc_verbs,ud_verbs,self $test 8; done
    ucx ud_verbs,self tag_lat 8
    ucx ud_verbs,self tag_bw 262144
else
    skip "ucx_perftest is not installed"
fi
