# What `--log` says of stock programs' mistakes and of completions with an error, and what the options reach.
# shellcheck shell=bash disable=SC2154
says() { # NAME PATTERN   of the output at hand
    if grep -Eq -- "$2" "$work/out"; then pass "$1"; else echo "nothing matches: $2" >> "$work/out"; bad "$1"; fi
}
if have ibv_rc_pingpong; then
    # A peer that is gone: everything that is said is in one line each.
    touch "$work/server.pid" && chmod 666 "$work/server.pid"
    # shellcheck disable=SC2016
    run --device 127.0.81.10 -- sh -c 'echo $$ > "$0"; exec ibv_rc_pingpong -d roce_lo -g 0 -n 100000000 -p 18593' \
        "$work/server.pid" > "$work/server" 2>&1 & server=$!
    listening 18593 $server
    run --device 127.0.81.11 --log info -- sh -c 'ibv_rc_pingpong -d roce_lo -g 0 -n 100000000 -p 18593 127.0.0.1' \
        > "$work/out" 2>&1 & client=$!
    sleep 1
    kill -KILL "$(cat "$work/server.pid")"
    wait $client; wait $server 2> /dev/null
    says "a device that is opened" '^userdma\[[0-9]+\] info: device roce_lo is open: 127\.0\.81\.11 port 4791$'
    says "a state and the peer" '^userdma\[[0-9]+\] info: QP 0x[0-9a-f]+: Init to Rtr, the peer is QP 0x[0-9a-f]+ at 127\.0\.81\.10$'
    says "nobody answers" 'warn: completion wr_id [0-9]+ QP 0x[0-9a-f]+: transport retry counter exceeded: nobody answered .* at 127\.0\.81\.10, QP 0x'
    # A path MTU that is not there.
    printf '[[device]]\nname = "narrow"\naddresses = ["127.0.81.12"]\nmtu = 512\n' > "$work/userdma.toml"
    chmod a+r "$work/userdma.toml"
    export USERDMA_CONFIG=$work/userdma.toml
    run -- ibv_devices > "$work/out" 2>&1; says "a device by name" '^[[:space:]]+narrow[[:space:]]'
    run -- ibv_devinfo > "$work/out" 2>&1; says "its MTU" 'active_mtu:[[:space:]]+512'
    run --log warn -- ibv_rc_pingpong -d narrow -g 0 -m 4096 -n 10 -p 18594 > "$work/server" 2>&1 & server=$!
    listening 18594 $server
    run --log warn -- ibv_rc_pingpong -d narrow -g 0 -m 4096 -n 10 -p 18594 127.0.0.1 > "$work/out" 2>&1
    wait $server
    # The server connects first.
    cp "$work/server" "$work/out"
    says "a field, its value and what is possible" 'modify_qp QP 0x[0-9a-f]+: Init to Rtr: path_mtu is 4096, .*512'
    echo 'mtu = 9000' >> "$work/userdma.toml"
    sed -i 's/^mtu = 512$//' "$work/userdma.toml"
    run -- ibv_devices > "$work/out" 2>&1
    says "a wrong line of the file" 'userdma\.toml:5: mtu = 9000: 256, 512, 1024, 2048 and 4096 are possible'
    unset USERDMA_CONFIG
    USERDMA_LOG_FILE=$work/no/such/folder run -- env USERDMA_DEVICES=nowhere ibv_devices > "$work/out" 2>&1
    says "an error whose file cannot be made" '^userdma\[[0-9]+\] error: devices: USERDMA_DEVICES=nowhere: `nowhere` is neither an IP address nor a device'
else
    skip "log: ibverbs-utils is not installed"
fi

# What starts other programs hands the devices on.
if have ibv_devices; then
    one "through a shell" '^[[:space:]]+roce_lo[[:space:]]' -- --device 127.0.81.20 -- sh -c 'ibv_devices'
    if have python3; then
        one "through Python" '^[[:space:]]+roce_lo[[:space:]]' -- --device 127.0.81.20 -- \
            python3 -c 'import subprocess; subprocess.run(["ibv_devices"], check=True)'
    else
        skip "through Python: python3 is not installed"
    fi
    if have mpirun; then
        one "through mpirun" '^[[:space:]]+roce_lo[[:space:]]' -- --device 127.0.81.20 -- \
            env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME="$work" \
            mpirun --oversubscribe -n 2 ibv_devices
    else
        skip "through mpirun: it is not installed"
    fi
fi
printf '#!%s\n' "$(command -v busybox)" > "$work/script" && chmod a+rx "$work/script"
if have busybox && ! ldd "$(command -v busybox)" > /dev/null 2>&1; then
    refuses "a script of a static interpreter is refused" 'it runs in .*busybox: it is linked statically' "$work/script"
fi
run -- sh -c 'kill -TERM $$' > "$work/out" 2>&1
if [ $? -eq 143 ]; then pass "a signal ends the program"; else bad "a signal ends the program"; fi
