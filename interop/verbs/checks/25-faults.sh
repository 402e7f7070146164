# Stock programs on bad networks, and what `--capture` writes of them, as tshark sees it.
# shellcheck shell=bash disable=SC2154
mkdir -m 777 "$work/capture"

# As `pair`, with options for `userdma run` on both sides.
with_options() { # NAME CHECK "OPTIONS" COMMAND...
    local options=$3 name=$1 check=$2; shift 3
    # shellcheck disable=SC2086
    run() { plainly timeout $limit "$userdma" run $options "$@"; }
    pair "$name" "$check" "$@"
    run() { plainly timeout $limit "$userdma" run "$@"; }
}

judge() { # NAME FILES...   tshark's opinion and ours
    local name=$1; shift
    "$here/../tshark/check" "$@" > "$work/out" 2>&1
    case $? in
        0) pass "$name: $(tail -1 "$work/out" | sed 's/^[^:]*: //')" ;;
        77) skip "$name: $(tail -1 "$work/out")" ;;
        *) bad "$name" ;;
    esac
}

if have ibv_rc_pingpong; then
    bytes=$((10000 * 200 * 2))
    for faults in loss=0.02 dup=0.05 reorder=0.05 corrupt=0.02 delay=200us rnr=0.2 \
        loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,rnr=0.05; do
        with_options "ibv_rc_pingpong with $faults" pingpong "--fault $faults,seed=7" \
            ibv_rc_pingpong -d roce_lo -g 0 -c -n 200 -s 10000 -m 1024
    done
    # In the middle of it the link of both is gone, for less than what the retries last.
    bytes=$((10000 * 20000 * 2))
    with_options "ibv_rc_pingpong, a link that goes and comes" pingpong "--fault down=50ms..150ms" \
        ibv_rc_pingpong -d roce_lo -g 0 -c -n 20000 -s 10000 -m 1024
    bytes=$((10000 * 200 * 2))
    with_options "ibv_rc_pingpong with --capture" pingpong "--capture $work/capture/%p.pcapng" \
        ibv_rc_pingpong -d roce_lo -g 0 -c -n 200 -s 10000 -m 1024
    judge "what two processes captured" "$work"/capture/*.pcapng
    rm -f "$work"/capture/*
    # One name for a shell and the two programs that it starts: each has a file of its own.
    run --device 127.0.81.1 --capture "$work/capture/c.pcapng" -- sh -c 'ibv_rc_pingpong -d roce_lo -g 0 -n 50 -p 18591 & sleep 1
        USERDMA_DEVICES=127.0.81.2 ibv_rc_pingpong -d roce_lo -g 0 -n 50 -p 18591 127.0.0.1; wait' > "$work/out" 2>&1
    if [ "$(find "$work/capture" -name 'c.pcapng*' | wc -l)" -eq 2 ]; then
        pass "two processes, one name: two files"
        judge "the files of two processes" "$work"/capture/c.pcapng*
    else
        bad "two processes, one name: $(find "$work/capture" -name 'c.pcapng*' | wc -l) files"
    fi
    rm -f "$work"/capture/*
    # Killed in the middle: what is in the file can be read to its end.
    touch "$work/pids" && chmod 666 "$work/pids"
    endless() { # OPTIONS... -- MORE ARGUMENTS OF ibv_rc_pingpong
        local options=()
        while [ "$1" != -- ]; do options+=("$1"); shift; done
        shift
        run "${options[@]}" -- sh -c 'echo $$ >> "$0"; exec ibv_rc_pingpong -d roce_lo -g 0 -n 100000000 -p 18592 "$@"' \
            "$work/pids" "$@"
    }
    endless --device 127.0.81.3 --capture "$work/capture/killed.pcapng" -- > "$work/server" 2>&1 & server=$!
    listening 18592 $server
    endless --device 127.0.81.4 -- 127.0.0.1 > "$work/out" 2>&1 & client=$!
    sleep 2
    # shellcheck disable=SC2046
    kill -KILL $(cat "$work/pids")
    wait $server $client 2> /dev/null
    # tshark takes too long for all of it: the first packets, and the last.
    if have editcap; then
        count=$("$userdma" capture --stats "$work/capture/killed.pcapng" | sed -n '1s/ .*//p')
        # The kernel may cut the write that a process dies in: then the packet behind those that count is not whole.
        if editcap -r "$work/capture/killed.pcapng" "$work/capture/some.pcapng" 1-500 "$((count - 500))-$count" 2> "$work/out"; then
            judge "what a killed process captured" "$work/capture/some.pcapng"
        else
            bad "what a killed process captured"
        fi
    else
        skip "what a killed process captured: editcap is not installed"
    fi
    # A fault that is not understood keeps the program from starting.
    if run --fault loss=2 -- ibv_devices > "$work/out" 2>&1; then bad "a wrong fault"
    elif grep -q '^userdma: --fault loss=2: loss=2: a probability from 0 to 1 is wanted$' "$work/out"; then
        pass "a wrong fault is named"
    else
        bad "a wrong fault"
    fi
else
    skip "faults: ibverbs-utils is not installed"
fi
