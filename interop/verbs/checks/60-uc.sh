# The tools of ibverbs-utils and perftest over unreliable connections.
# shellcheck shell=bash disable=SC2034,SC2154
if have ibv_uc_pingpong; then
    for size in 1 4096 65536; do
        bytes=$((size * 100 * 2))
        pair "ibv_uc_pingpong, $size bytes" pingpong ibv_uc_pingpong -d roce_lo -g 0 -c -n 100 -s $size -m 4096
        pair "ibv_uc_pingpong -e, $size bytes" pingpong ibv_uc_pingpong -d roce_lo -g 0 -c -n 100 -s $size -m 4096 -e
    done
    bytes=$((10000 * 100 * 2))
    pair "ibv_uc_pingpong, MTU 256" pingpong ibv_uc_pingpong -d roce_lo -g 0 -c -n 100 -s 10000 -m 256
else
    skip "ibverbs-utils is not installed"
fi
if have ib_write_bw; then
    iterations=200
    for tool in ib_write_bw ib_send_bw; do
        size=65536
        together "$tool -c UC" perf $tool -d roce_lo -F -c UC -n 200 -s 65536
        together "$tool -c UC --use_old_post_send" perf $tool -d roce_lo -F -c UC -n 200 -s 65536 --use_old_post_send
        together "$tool -c UC, 4 queue pairs" perf4 $tool -d roce_lo -F -c UC -n 200 -s 65536 -q 4
        together "$tool -c UC -b" perfb $tool -d roce_lo -F -c UC -n 200 -s 65536 -b
        together "$tool -c UC, MTU 1024" perf $tool -d roce_lo -F -c UC -n 200 -s 65536 -m 1024
    done
    together "ib_send_bw -c UC -e" perf ib_send_bw -d roce_lo -F -c UC -n 200 -s 65536 -e
    size=2
    for tool in ib_write_lat ib_send_lat; do
        together "$tool -c UC" perf $tool -d roce_lo -F -c UC -n 200
    done
    together "ib_send_lat -c UC -e" perf ib_send_lat -d roce_lo -F -c UC -n 200 -e
else
    skip "perftest is not installed"
fi
