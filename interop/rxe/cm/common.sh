# What the cases of connections have in common; sourced by `connections` in the guest's namespace, on our side.
# shellcheck shell=bash disable=SC2034,SC2154
n=0 failed=0
# All cases use one port: one that stays taken shows in the next.
port=7174 family=4
here_at() { if [ $family = 4 ]; then echo 10.99.0.1; else echo fd99::1; fi; }
there_at() { if [ $family = 4 ]; then echo 10.99.0.2; else echo fd99::2; fi; }
full() { [ "${FULL:-0}" = 1 ]; }

# ---- the guest ----

guest() { # SCRIPT    starts it there
    n=$((n + 1))
    printf '%s\n' "$1" > "$share/cmd.tmp"
    mv "$share/cmd.tmp" "$share/$n.cmd"
}
# Waits for it: its status, and in $said its output.
theirs=0 said=/dev/null
guest_ends() {
    until [ -e "$share/$n.status" ]; do sleep 0.02; done
    theirs=$(cat "$share/$n.status") said=$share/$n.out
}
# A server in the guest, until it listens. It ends by itself, or when there is a file N.stop. (A listener on all addresses is in
# the kernel's list, too.)
guest_serves() { # COMMAND
    guest "n=$((n + 1))
        $1 & p=\$!
        until rdma resource show cm_id | grep -q 'state LISTEN.*:$port ' || ! kill -0 \$p 2> /dev/null; do sleep 0.02; done
        : > $share/\$n.listens
        while kill -0 \$p 2> /dev/null && [ ! -e $share/\$n.stop ]; do sleep 0.05; done
        kill \$p 2> /dev/null; wait \$p"
    until [ -e "$share/$n.listens" ]; do sleep 0.02; done
}
# What there is in the guest must be what there was before anything ran. The last of a connection goes a little later.
guest_objects() {
    guest "for try in \$(seq 100); do
            rdma resource show > $share/objects.now
            [ ! -e $share/objects ] || ! cmp $share/objects $share/objects.now || exit 0
            [ -e $share/objects ] || break
            sleep 0.05
        done
        [ -e $share/objects ] || exec cp $share/objects.now $share/objects
        cat $share/objects.now; rdma resource show qp; rdma resource show cm_id; exit 1"
    guest_ends
}

# ---- ours ----

ours() { # LIMIT COMMAND...    runs it over `userdma run`; its output is in $share/ours
    local limit=$1; shift
    rm -f "$share/log"
    USERDMA_LOG=info USERDMA_LOG_FILE=$share/log \
        timeout "$limit" "$userdma" run --device "$(here_at)" -- "$@" > "$share/ours" 2>&1
}
ours_listens() { # PID
    until grep -qs ' listens at ' "$share/log" || ! kill -0 "$1" 2> /dev/null; do sleep 0.02; done
}
# Ends it, and what it has started.
stop() { # PID [SIGNAL]
    local child
    # shellcheck disable=SC2013
    for child in $(cat "/proc/$1/task/$1/children" 2> /dev/null); do stop "$child" "${2:-TERM}"; done
    kill "-${2:-TERM}" "$1" 2> /dev/null
}
# A program of ours that is there all the time. It is the agent, so that the others leave one behind who can speak for them.
keeper="" names=0
keeper() {
    keeper_ends
    USERDMA_LOG=info USERDMA_LOG_FILE=$share/keeper.log "$userdma" run --device "$(here_at)" -- \
        "$hears" -b "$(here_at)" -p 7999 stall > "$share/keeper" 2>&1 & keeper=$!
    until grep -qs ' listens at ' "$share/keeper.log"; do sleep 0.02; done
    names=$(names)
}
keeper_ends() {
    [ -n "$keeper" ] && { stop "$keeper"; wait "$keeper"; } 2> /dev/null
    keeper=
    rm -f "$share/keeper.log"
}
# What the agent knows of devices are names of sockets: its own, one for each slot that is taken, the lines to their processes.
names() { grep -c ' @userdma' /proc/net/unix; }
our_objects() {
    local try
    [ -n "$keeper" ] || return 0
    for try in $(seq 100); do
        [ "$(names)" -eq "$names" ] && return
        sleep 0.05
    done
    grep ' @userdma' /proc/net/unix > "$share/ours"
    return 1
}

# ---- packets that do not arrive ----

# Behind the UDP header there are BTH (12 bytes, the queue pair's number in its second word), DETH (8) and the management
# datagram, whose attribute is at 16.
to_qp1="udp dport 4791 @th,104,24 0x000001"
declare -A attribute=([REQ]=0x0010 [REP]=0x0013 [RTU]=0x0014 [DREQ]=0x0015 [DREP]=0x0016 [SIDR_REQ]=0x0017 [SIDR_REP]=0x0018)
# Prints the script that drops what comes to a device and matches a rule.
drops() { # DEVICE RULE...
    local device=$1; shift
    printf '%s\n' "nft -f - <<X" "table netdev loss {" "chain c { type filter hook ingress device $device priority 0;" \
        "${@/%/ counter drop;}" "}" "}" X
}
# Of each kind of message the first.
loses() { # DEVICE MESSAGE...
    local device=$1 message rules=(); shift
    for message in "$@"; do
        rules+=("$to_qp1 @th,352,16 ${attribute[$message]} numgen inc mod 100000 offset 1 { 1 }")
    done
    drops "$device" "${rules[@]}"
}
# Ends that, and prints how many there were of each kind.
lost="nft list table netdev loss 2> /dev/null | sed -n 's/.*counter packets \([0-9]*\).*/lost \1/p'
    nft delete table netdev loss 2> /dev/null"
# A server and a client as `meet` has them, while the server loses some kinds of messages and the client others.
meet_with_loss() { # "MESSAGES" (server) "MESSAGES" (client) WHAT-`meet`-TAKES...
    local here=$1 there=$2 name=$3 kinds; shift 2
    [ "$2" = client ] && { local swap=$here; here=$there there=$swap; }
    # shellcheck disable=SC2086
    { guest "$(loses eth0 $there)"; guest_ends; bash -c "$(loses peer0 $here)"; kinds=$(set -- $here $there; echo $#); }
    meet "$@" > "$share/met"
    guest "$lost"; guest_ends; bash -c "$lost" > "$share/lost"
    if [ "$(cat "$share/lost" "$said" | grep -c '^lost 1$')" -ne "$kinds" ] && grep -q '^ok' "$share/met"; then
        bad "$name" "not all of it was lost"
    else
        cat "$share/met"
    fi
}

# ---- verdicts ----

fine() { echo "ok     $1"; }
bad() { # NAME WHY
    failed=1
    echo "FAILED $1: $2"
    tail -n 8 "$share/ours" | cut -c1-200 | sed 's/^/           ours:   /'
    tail -n 8 "$said" | cut -c1-200 | sed 's/^/           theirs: /'
}
# After the last look at what both have printed: is anything left?
judge() { # NAME WHY
    local name=$1 why=$2 output=$said
    [ -z "$why" ] || { bad "$name" "$why"; return; }
    guest_objects
    [ "$theirs" -eq 0 ] || { bad "$name" "the guest has more than before"; return; }
    said=$output
    our_objects || { bad "$name" "our agent has more than before"; return; }
    fine "$name"
}
# Says which line of PATTERNS does not match, looked for one behind the other in the output.
shows() { # OUTPUT PATTERNS
    local from=1 at pattern
    while read -r pattern; do
        [ -n "$pattern" ] || continue
        at=$(tail -n "+$from" "$1" | grep -nE -m 1 -- "$pattern" | cut -d: -f1)
        [ -n "$at" ] || { echo "nothing matches: $pattern"; return; }
        from=$((from + at))
    done <<< "$2"
}

# ---- a server and a client ----

# In commands @ is the server's address, % the port.
at() { # ADDRESS COMMAND
    local command=${2//@/$1}
    echo "${command//%/$port}"
}
# Both must end well, and print what their patterns say.
meet() { # NAME client|server (we) SERVER CLIENT SERVER-PATTERNS CLIENT-PATTERNS
    local name="$1, we are the $2, IPv$family" status why
    "meet_as_$2" "$3" "$4"
    if [ "$2" = client ]; then
        why=$(shows "$said" "$5"; shows "$share/ours" "$6")
    else
        why=$(shows "$share/ours" "$5"; shows "$said" "$6")
    fi
    [ "$status/$theirs" = 0/0 ] || why="ours ended with $status, theirs with $theirs. $why"
    judge "$name" "$why"
}
both() { # NAME SERVER CLIENT SERVER-PATTERNS CLIENT-PATTERNS
    meet "$1" client "${@:2}"
    meet "$1" server "${@:2}"
}
meet_as_client() { # SERVER CLIENT
    guest_serves "$(at "$(there_at)" "timeout 60 $1")"
    ours 60 bash -c "$(at "$(there_at)" "$2")"; status=$?
    [ $status -eq 0 ] || : > "$share/$n.stop"
    guest_ends
    forgive "$1" "$said" && theirs=0
}
meet_as_server() { # SERVER CLIENT
    local server
    ours 60 bash -c "$(at "$(here_at)" "$1")" & server=$!
    ours_listens $server
    guest "timeout 60 $(at "$(here_at)" "$2")"
    guest_ends
    [ "$theirs" -eq 0 ] || stop $server
    wait $server; status=$?
    forgive "$1" "$share/ours" && status=0
}
# rping's two threads race when a server ends: one may close the channel that the other is about to ask.
forgive() { # COMMAND OUTPUT
    case $1 in rping*) grep -q '^rdma_get_cm_event: Bad file descriptor$' "$2" ;; *) false ;; esac
}
