# Programs that know a peer by its LID only, over devices that have LIDs: qperf, whose tests of connections and datagrams have no
# other way, and pingpongs without -g.
# shellcheck shell=bash disable=SC2034,SC2154
if have ibv_rc_pingpong; then
    bytes=$((4096 * 100 * 2))
    meet "ibv_rc_pingpong without -g" pingpong "--lids --device 127.0.43.1" "--lids --device 127.0.43.2" ibv_rc_pingpong -c -n 100
    bytes=$((4096 * 100 * 2))
    meet "ibv_uc_pingpong without -g" pingpong "--lids --device 127.0.43.1" "--lids --device 127.0.43.2" ibv_uc_pingpong -c -n 100
    bytes=$((1024 * 100 * 2))
    meet "ibv_ud_pingpong without -g" pingpong "--lids --device 127.0.43.1" "--lids --device 127.0.43.2" ibv_ud_pingpong -c -n 100 -s 1024
    one "the LID of a port" 'port_lid:[[:space:]]+11010$' -- --lids --device 127.0.43.2 -- ibv_devinfo
    one "a port without LIDs" 'port_lid:[[:space:]]+0$' -- --device 127.0.43.2 -- ibv_devinfo
    one "the LID of a port in sysfs" '^0x2b02$' -- --lids --device 127.0.43.2 -- cat /sys/class/infiniband/roce_lo/ports/1/lid
    # Without LIDs it is told what would help.
    run --log warn --device 127.0.43.1 -- ibv_rc_pingpong -n 10 -p 18589 > "$work/server" 2>&1 & server=$!
    listening 18589 $server
    run --device 127.0.43.2 -- ibv_rc_pingpong -n 10 -p 18589 127.0.0.1 > "$work/out" 2>&1
    wait $server
    cp "$work/server" "$work/out"
    if grep -Eq 'modify_qp QP 0x[0-9a-f]+: ah_attr.is_global is 0, 1 \(RoCE needs the GRH .*--lids' "$work/out"; then
        pass "a LID where there are none"
    else
        bad "a LID where there are none"
    fi
else
    skip "LIDs: ibverbs-utils is not installed"
fi

# qperf's result has a figure above 0; a service that may lose messages counts those that arrived. Those that verify say so if a
# value is not what it should be.
qperf_line() { # TEST
    local figure='[0-9.]*[1-9][0-9.]*'
    ! grep -qi 'error\|mismatch\|failed' "$work/out" && case $1 in
        *_lat) grep -Eq "^ +latency += +$figure (ns|us|ms)\$" "$work/out" ;;
        *_mr | ver_*) grep -Eq "^ +msg_rate += +$figure [KM]?/sec\$" "$work/out" ;;
        u*_bw) grep -Eq "^ +recv_bw += +$figure [KMG]B/sec\$" "$work/out" ;;
        *_bw) grep -Eq "^ +bw += +$figure [KMG]B/sec\$" "$work/out" ;;
    esac
}
if have qperf; then
    run --lids --device 127.0.43.1 -- qperf -lp 18588 > "$work/qperf" 2>&1 & server=$!
    listening 18588 $server
    for test in rc_bi_bw rc_bw rc_lat uc_bi_bw uc_bw uc_lat ud_bi_bw ud_bw ud_lat rc_rdma_read_bw rc_rdma_read_lat \
        rc_rdma_write_bw rc_rdma_write_lat rc_rdma_write_poll_lat uc_rdma_write_bw uc_rdma_write_lat uc_rdma_write_poll_lat \
        rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add; do
        run --lids --device 127.0.43.1 -- qperf -lp 18588 127.0.0.1 -t 1 $test > "$work/out" 2>&1; status=$?
        if [ $status -eq 0 ] && qperf_line $test; then
            pass "qperf $test"
        else
            { echo "status $status"; tail -5 "$work/qperf"; } >> "$work/out"; bad "qperf $test"
        fi
    done
    run -- qperf -lp 18588 127.0.0.1 quit > "$work/out" 2>&1
    wait $server
else
    skip "qperf is not installed"
fi
