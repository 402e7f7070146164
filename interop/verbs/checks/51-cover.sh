# A cover of perftest's options: every two meet in some run of perftest.cover; every size once with each tool; eight pairs of
# programs at once. All processes share one device.
# shellcheck shell=bash disable=SC2154
cover_device=127.0.40.1,::1
# perftest's line for the size, with figures above 0; with several queue pairs, or in both directions, the iterations are
# counted together. A server of a one-sided test has no figures of its own.
covered() { # OUTPUT SIZE ITERATIONS
    awk -v s="$2" -v n="$3" '$1 == s && ($2 == n || $2 == 2 * n || $2 == 8 * n || $2 == 16 * n) && $4 + 0 > 0 { found = 1 }
        END { exit !found }' "$1"
}
# Client and server on one device; the client's output is judged.
cover_run() { # PORT SIZE ITERATIONS COMMAND...
    local at=$1 size=$2 n=$3 server s1 s2; shift 3
    run --device $cover_device -- "$@" -p "$at" > "$work/server.$at" 2>&1 & server=$!
    if ! listening "$at" $server; then
        cp "$work/server.$at" "$work/out.$at"; kill $server 2> /dev/null; wait $server; return 1
    fi
    run --device $cover_device -- "$@" -p "$at" 127.0.0.1 > "$work/out.$at" 2>&1; s2=$?
    wait $server; s1=$?
    if [ $s1 -eq 0 ] && [ $s2 -eq 0 ] && covered "$work/out.$at" "$size" "$n"; then return 0; fi
    { echo "-- server, status $s1; client's status $s2"; tail -12 "$work/server.$at"; } >> "$work/out.$at"
    return 1
}
cover() { # SIZE ITERATIONS COMMAND...
    port=$((port + 1))
    local name=${*:3}
    if cover_run $port "$1" "$2" "${@:3}"; then pass "${name/ -d roce_lo -F/}"; else mv "$work/out.$port" "$work/out"; bad "$name"; fi
}
if have ib_write_bw; then
    while read -r tool options; do
        size=8
        [[ $options =~ -s\ ([0-9]+) ]] && size=${BASH_REMATCH[1]}
        # shellcheck disable=SC2086
        cover "$size" 200 "$tool" -d roce_lo -F -n 200 $options < /dev/null
    done < <(grep -v '^#' "$here/perftest.cover")
    for tool in ib_send ib_write ib_read; do
        cover 8388608 50 ${tool}_bw -d roce_lo -F -n 50 -a
        cover 8388608 50 ${tool}_lat -d roce_lo -F -n 50 -a
    done
    eight=()
    for at in $(seq 18590 18597); do
        cover_run "$at" 65536 2000 ib_write_bw -d roce_lo -F -n 2000 -s 65536 & eight+=($!)
    done
    ended=0
    for pid in "${eight[@]}"; do wait "$pid" && ended=$((ended + 1)); done
    if [ $ended -eq 8 ]; then
        pass "eight pairs of ib_write_bw at once"
    else
        cat "$work"/out.1859? > "$work/out"; bad "eight pairs of ib_write_bw at once: $ended ended well"
    fi
else
    skip "perftest is not installed"
fi
