# The tools of ibverbs-utils and perftest over unreliable datagrams: messages up to the port's MTU. Nothing may be lost, or the
# tools would wait for ever.
# shellcheck shell=bash disable=SC2034,SC2154
if have ibv_ud_pingpong; then
    for size in 1 1024 4096; do
        bytes=$((size * 100 * 2))
        pair "ibv_ud_pingpong, $size bytes" pingpong ibv_ud_pingpong -d roce_lo -g 0 -c -n 100 -s $size
        pair "ibv_ud_pingpong -e, $size bytes" pingpong ibv_ud_pingpong -d roce_lo -g 0 -c -n 100 -s $size -e
    done
    together "ibv_ud_pingpong, one address" pingpong ibv_ud_pingpong -g 0 -c -n 100 -s 4096
else
    skip "ibverbs-utils is not installed"
fi
if have ib_send_bw; then
    iterations=200
    for size in 2 1024 4096; do
        together "ib_send_bw -c UD, $size bytes" perf ib_send_bw -d roce_lo -F -c UD -n 200 -s $size
        together "ib_send_lat -c UD, $size bytes" perf ib_send_lat -d roce_lo -F -c UD -n 200 -s $size
    done
    together "ib_send_bw -c UD --use_old_post_send" perf ib_send_bw -d roce_lo -F -c UD -n 200 -s 4096 --use_old_post_send
    together "ib_send_lat -c UD --use_old_post_send" perf ib_send_lat -d roce_lo -F -c UD -n 200 -s 4096 --use_old_post_send
    together "ib_send_bw -c UD -b" perfb ib_send_bw -d roce_lo -F -c UD -n 200 -s 4096 -b
    together "ib_send_bw -c UD -e" perf ib_send_bw -d roce_lo -F -c UD -n 200 -s 4096 -e
    together "ib_send_lat -c UD -e" perf ib_send_lat -d roce_lo -F -c UD -n 200 -s 4096 -e
    # On one address the sender sees how full the receiver's buffer is: many more messages than fit it, but not more than the
    # receiver posts receives for (512).
    iterations=500
    for size in 64 4096; do
        together "ib_send_bw -c UD, one address, $size bytes" perf ib_send_bw -F -c UD -n 500 -s $size
    done
else
    skip "perftest is not installed"
fi
