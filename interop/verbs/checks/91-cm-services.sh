# Datagrams by the connection manager, and what uses librdmacm beside its own tools. After 90-cm.sh, whose functions it takes.
# shellcheck shell=bash disable=SC2034,SC2154
cm_at=127.44.0.1 cm_server=127.44.0.1 cm_client=127.44.0.2 cm_space=tcp

# perftest: as elsewhere, but its two sides meet by the connection manager.
cm_perf() { # SIZE TOOL OPTIONS...
    local size=$1 n=200; shift
    cm_attempts=8 cm "$* -R" '' "^ *$size +$n +[0-9.]*[1-9]" "$@" -R -F -n $n -p % -- "$@" -R -F -n $n -p % @
}
# fio's rdma engine: 4 MiB. Of blocks that are sent the other side's program looks at every one (`verify`).
cm_fio() { # VERB
    local common=(--name=job --ioengine=rdma --bs=16k --size=4m --port %) receiver=() sender=() seen=""
    if [ "$1" = send ]; then receiver=(--verify=crc32c) sender=(--verify=crc32c --do_verify=0) seen=' READ: .* io=4096KiB'; fi
    cm "fio, $1" "$seen" ' WRITE: .* io=4096KiB' fio "${common[@]}" --rw=read --iodepth=16 "${receiver[@]}" -- \
        fio "${common[@]}" --rw=write --iodepth=4 "${sender[@]}" --hostname=$cm_at --verb="$1"
}
# Blocks that are written or read the other side's program does not see, so the buffers of both are files, at which we look: each
# block of the side that they go to must be the one that all blocks of the other side are.
cm_fio_memory() { # VERB
    local verb=$1 from=client to=server blocks=16 common=(--name=job --ioengine=rdma --bs=16k --size=4m --port %) fill=() i
    head -c 16384 /dev/urandom > "$work/block"
    if [ "$verb" = read ]; then from=server to=client blocks=4; else
        fill=("--buffer_pattern=\"userdma-\"" --scramble_buffers=0)
        yes userdma- | tr -d '\n' | head -c 16384 > "$work/block"
    fi
    mkdir -m 777 "$work/fio"
    head -c $((16384 * 16)) /dev/zero > "$work/fio/$to"
    for i in $(seq 16); do cat "$work/block"; done > "$work/fio/$from"
    chmod a+rw "$work/fio"/*
    for i in $(seq $blocks); do cat "$work/block"; done > "$work/expected"
    cm "fio, $verb, files as buffers" '' ' WRITE: .* io=4096KiB' \
        fio "${common[@]}" --rw=read --iodepth=16 "--iomem=mmapshared:$work/fio/server" -- \
        fio "${common[@]}" --rw=write --iodepth=4 "${fill[@]}" "--iomem=mmapshared:$work/fio/client" --hostname=$cm_at "--verb=$verb"
    if cmp -n $((16384 * blocks)) "$work/fio/$to" "$work/expected" > "$work/out" 2>&1; then
        pass "fio, $verb: every block is there"
    else
        bad "fio, $verb: the blocks are not there"
    fi
    rm -rf "$work/fio"
}
# ucx_perftest has no call of the connection manager (no `ucp_listener_create`): its sides exchange addresses over TCP.
cm_ucx() {
    local examples=/usr/share/doc/libucx-dev/examples api
    if ! have ucx_info || ! cc -w -O1 -o "$work/ucpcs" -I$examples $examples/ucp_client_server.c -lucp -lucs > "$work/out" 2>&1; then
        skip "UCX over the connection manager: libucx-dev is not installed"; return
    fi
    chmod a+rx "$work/ucpcs"
    # shellcheck disable=SC2054
    cm_env=(env UCX_TLS=rc_verbs,ud_verbs UCX_SOCKADDR_TLS_PRIORITY=rdmacm UCX_WARN_UNUSED_ENV_VARS=n stdbuf -oL)
    for api in stream tag am; do
        cm "UCX's ucp_client_server -c $api" 'TEST SUCCESS' 'Client: iteration #50' \
            endless "$work/ucpcs" -l @ -p % -c $api -i 50 -s 20000 -- "$work/ucpcs" -a @ -p % -c $api -i 50 -s 20000
    done
    cm_env=()
}

if have udaddy; then
    # Its port cannot be chosen.
    cm_space=udp cm_port=7173
    cm udaddy '^return status 0$' '^return status 0$' udaddy -b @ -c 5 -C 20 -S 1000 -- udaddy -s @ -c 5 -C 20 -S 1000
    cm_port=7400 cm_space=tcp
    head -c 20000000 /dev/urandom > "$work/file"
    chmod a+r "$work/file"
    mkdir -m 777 "$work/copied"
    cm rcopy '' '[0-9]' endless rcopy -p % -- rcopy "$work/file" "$cm_at:$work/copied/file" -p %
    if cmp "$work/file" "$work/copied/file" > "$work/out" 2>&1; then
        pass "rcopy: both files are the same"
    else
        bad "rcopy: the files differ"
    fi
    rm -rf "$work/copied" "$work/file"
else
    skip "rdmacm-utils is not installed"
fi
if have ib_write_bw; then
    for tool in ib_send ib_write ib_read; do
        cm_perf 65536 ${tool}_bw -s 65536
        cm_perf 8 ${tool}_lat -s 8
    done
    cm_perf 8 ib_atomic_bw
    cm_perf 8 ib_atomic_lat
    cm_perf 1024 ib_send_bw -c UD -s 1024
else
    skip "perftest is not installed"
fi
if have qperf; then
    cm_space=sockets
    for test in rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_lat rc_compare_swap_mr \
        rc_fetch_add_mr; do
        cm "qperf -cm 1 $test" '' '(bw|latency|msg_rate) +=' endless qperf -lp % -- qperf -lp % @ -t 1 -cm 1 $test
    done
    cm_space=tcp
else
    skip "qperf is not installed"
fi
if have fio && fio --enghelp 2> /dev/null | grep -q '	rdma$'; then
    for verb in write read send; do cm_fio $verb; done
    for verb in write read; do cm_fio_memory $verb; done
else
    skip "fio with its rdma engine is not installed"
fi
cm_ucx
