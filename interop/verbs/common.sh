# What the checks have in common; sourced by run-all, which says where everything is.
# shellcheck shell=bash disable=SC2034,SC2154
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "ok    $1"; }
bad() { failed=$((failed + 1)); echo "FAILED: $1"; sed 's/^/        /' "$work/out" | cut -c1-300 | tail -25; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }
have() { command -v "$1" > /dev/null 2>&1; }
is_root() { [ "$(id -u)" -eq 0 ]; }
# As root: which user the programs are, and what goes before them, to be in a network namespace.
user=65534 inside=()
plainly() {
    if is_root; then
        "${inside[@]}" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs "$@"
    else
        setpriv --no-new-privs "$@"
    fi
}
# Seconds after which a program counts as hanging. Programs that poll memory answer each other once in a time slice when others
# use all processors, so that what takes a second alone takes a hundred.
limit=240
run() { plainly timeout $limit "$userdma" run "$@"; }

# One program: its output must match every pattern.
one() { # NAME PATTERNS... -- COMMAND...
    local name=$1 patterns=() status p; shift
    while [ "$1" != -- ]; do patterns+=("$1"); shift; done
    shift
    run "$@" > "$work/out" 2>&1; status=$?
    if [ $status -ne 0 ]; then echo "status $status" >> "$work/out"; bad "$name"; return; fi
    for p in "${patterns[@]}"; do
        if ! grep -Eq -- "$p" "$work/out"; then echo "nothing matches: $p" >> "$work/out"; bad "$name"; return; fi
    done
    pass "$name"
}

# Waits until a TCP port is listened on.
listening() { # PORT PID
    local hex i
    hex=$(printf ':%04X' "$1")
    for i in $(seq $((limit * 10))); do
        "${inside[@]}" grep -qi "$hex 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return 0
        kill -0 "$2" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Network namespaces, which end with the checks.
namespaces=()
namespace() { # NAME
    ip netns add "$1" > "$work/out" 2>&1 || return
    namespaces+=("$1")
    ip -n "$1" link set lo up
}
# Two of them with a cable between.
join() { # NAME OTHER
    namespace "$1" && namespace "$2" || return
    ip link add name userdma0 netns "$1" type veth peer name userdma0 netns "$2" &&
        ip -n "$1" address add 10.61.0.1/24 dev userdma0 && ip -n "$2" address add 10.61.0.2/24 dev userdma0 &&
        ip -n "$1" address add fd61::1/64 dev userdma0 nodad && ip -n "$2" address add fd61::2/64 dev userdma0 nodad &&
        ip -n "$1" link set userdma0 up && ip -n "$2" link set userdma0 up
} > "$work/out" 2>&1
remove_namespaces() {
    local name
    for name in "${namespaces[@]}"; do ip netns del "$name"; done
    namespaces=()
}

# Two programs that meet on a TCP port; the client's output (and the server's, if CHECK wants it) is judged.
port=18600 host=0
# The server's address on TCP, and where it runs, if not where the client does.
server_at=127.0.0.1 server_inside=()
meet() { # NAME CHECK "OPTIONS OF THE SERVER'S RUN" "OF THE CLIENT'S" COMMAND...   CHECK is a function that reads an output
    local name=$1 check=$2 first=$3 second=$4 server s1 s2; shift 4
    local client_inside=("${inside[@]}")
    port=$((port + 1))
    [ ${#server_inside[@]} -eq 0 ] || inside=("${server_inside[@]}")
    # shellcheck disable=SC2086
    run $first -- "$@" -p $port > "$work/server" 2>&1 & server=$!
    listening $port $server; s1=$?
    inside=("${client_inside[@]}")
    if [ $s1 -ne 0 ]; then
        cp "$work/server" "$work/out"; bad "$name: the server does not listen"; kill $server 2> /dev/null; wait $server; return
    fi
    # shellcheck disable=SC2086
    run $second -- "$@" -p $port $server_at > "$work/out" 2>&1; s2=$?
    wait $server; s1=$?
    if [ $s1 -ne 0 ] || [ $s2 -ne 0 ]; then
        { echo "-- server, status $s1; client's status $s2"; tail -12 "$work/server"; } >> "$work/out"; bad "$name"; return
    fi
    if $check "$work/out" && $check "$work/server"; then pass "$name"; else cat "$work/server" >> "$work/out"; bad "$name: the output is not right"; fi
}
# On two addresses.
pair() { # NAME CHECK COMMAND...
    host=$((host + 1))
    meet "$1" "$2" "--device 127.31.$((host / 200)).$((host % 200 + 1))" \
        "--device 127.32.$((host / 200)).$((host % 200 + 1))" "${@:3}"
}
# On one address, which their devices share.
together() { # NAME CHECK COMMAND...
    meet "$1" "$2" "--device 127.0.34.2" "--device 127.0.34.2" "${@:3}"
}
# ibv_rc_pingpong has compared every byte (-c) and says how many there were.
pingpong() { grep -Eq "^$bytes bytes in .* seconds = .* Mbit/sec" "$1" && ! grep -q 'invalid data' "$1"; }
# perftest's line: size, iterations, and figures above 0. A server of a one-sided test has no figures of its own.
perf() { awk -v s="$size" -v n="$iterations" '$1 == s && $2 == n && $4 + 0 > 0 { found = 1 } END { exit !found }' "$1" ||
    { [ "$1" = "$work/server" ] && grep -q '^ remote address' "$1"; }; }
# With four queue pairs, or in both directions, the iterations are counted together.
perf4() { iterations=800 perf "$1"; }
perfb() { perf "$1" || iterations=400 perf "$1"; }
