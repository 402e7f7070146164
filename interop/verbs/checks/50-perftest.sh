# The tools of perftest.
# shellcheck shell=bash disable=SC2154
if have ib_write_bw; then
    iterations=200
    for tool in ib_write_bw ib_read_bw ib_send_bw; do
        size=65536
        pair "$tool" perf $tool -d roce_lo -F -n 200 -s 65536
        pair "$tool --use_old_post_send" perf $tool -d roce_lo -F -n 200 -s 65536 --use_old_post_send
        pair "$tool, 4 queue pairs" perf4 $tool -d roce_lo -F -n 200 -s 65536 -q 4
    done
    size=8
    pair "ib_atomic_bw" perf ib_atomic_bw -d roce_lo -F -n 200
    pair "ib_atomic_bw -A CMP_AND_SWAP" perf ib_atomic_bw -d roce_lo -F -n 200 -A CMP_AND_SWAP
    size=65536
    for tool in ib_write_bw ib_read_bw ib_send_bw; do
        together "$tool, one address" perf $tool -F -n 200 -s 65536
    done
    meet "ib_write_bw, nothing said of devices" perf "" "" ib_write_bw -F -n 200 -s 65536
    pair "ib_send_bw -e" perf ib_send_bw -d roce_lo -F -n 200 -s 65536 -e
    pair "ib_write_bw -b" perfb ib_write_bw -d roce_lo -F -n 200 -s 65536 -b
    size=2
    for tool in ib_write_lat ib_send_lat ib_read_lat ib_atomic_lat; do
        [ $tool = ib_atomic_lat ] && size=8
        pair "$tool" perf $tool -d roce_lo -F -n 200
    done
else
    skip "perftest is not installed"
fi
