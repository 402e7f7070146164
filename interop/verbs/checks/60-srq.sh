# Shared receive queues: what they answer to a program in C, and the tools that use them.
# shellcheck shell=bash disable=SC2154
if have ibv_srq_pingpong; then
    bytes=$((4096 * 200 * 2))
    pair "ibv_srq_pingpong, 4 queue pairs" pingpong ibv_srq_pingpong -d roce_lo -g 0 -c -q 4 -n 200 -s 4096 -m 4096
    pair "ibv_srq_pingpong -e, 4 queue pairs" pingpong ibv_srq_pingpong -d roce_lo -g 0 -c -q 4 -n 200 -s 4096 -m 4096 -e
    bytes=$((100000 * 200 * 2))
    pair "ibv_srq_pingpong, 16 queue pairs" pingpong ibv_srq_pingpong -d roce_lo -g 0 -c -q 16 -n 200 -s 100000 -m 1024
else
    skip "ibv_srq_pingpong is not installed"
fi
if have ib_send_bw; then
    iterations=200 size=65536
    pair "ib_send_bw --use-srq" perf ib_send_bw -d roce_lo -F -n 200 -s 65536 --use-srq
    pair "ib_send_bw --use-srq, 4 queue pairs" perf4 ib_send_bw -d roce_lo -F -n 200 -s 65536 -q 4 --use-srq
    pair "ib_send_bw --use-srq -e" perf ib_send_bw -d roce_lo -F -n 200 -s 65536 --use-srq -e
    pair "ib_send_bw --use-srq -b" perfb ib_send_bw -d roce_lo -F -n 200 -s 65536 --use-srq -b
    size=2
    pair "ib_send_lat --use-srq" perf ib_send_lat -d roce_lo -F -n 200 --use-srq
fi
