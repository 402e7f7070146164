# A daemon closes every descriptor that it does not know, while it has a device and, as the first on its address, the agent.
# shellcheck shell=bash disable=SC2034,SC2154
closed_descriptors() {
    local daemon status
    cc -Wall -Werror -O1 -o "$work/closing" "$here/closing.c" -libverbs > "$work/out" 2>&1 || return
    chmod a+rx "$work/closing"
    coproc DAEMON { run --device 127.0.34.2 -- "$work/closing" 2>&1; }
    daemon=$DAEMON_PID
    read -r -t 20 -u "${DAEMON[0]}" status
    if [ "$status" != closed ]; then echo "the daemon says: $status" > "$work/out"; bad "closed descriptors"; return; fi
    together "beside a program that closed its descriptors" pingpong ibv_rc_pingpong -g 0 -c -n 100 -s 10000
    eval "exec ${DAEMON[1]}>&-"
    wait "$daemon"; status=$?
    if [ $status -eq 0 ]; then pass "it sleeps, and ends"; else echo "status $status" > "$work/out"; bad "it sleeps, and ends"; fi
    together "after its end" pingpong ibv_rc_pingpong -g 0 -c -n 100 -s 10000
}
if ! have cc || [ ! -e /usr/include/infiniband/verbs.h ] || ! have ibv_rc_pingpong; then
    skip "closed descriptors: cc, libibverbs-dev or ibverbs-utils is not installed"
else
    bytes=$((10000 * 100 * 2))
    closed_descriptors
fi
