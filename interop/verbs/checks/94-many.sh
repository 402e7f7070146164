# Ten thousand connections, two hundred alive at a time, and what they leave in both processes. After 90-cm.sh, whose functions it
# takes.
# shellcheck shell=bash disable=SC2034,SC2154
cm_at=127.72.9.1 cm_server=127.72.9.1 cm_client=127.72.9.2 cm_space=tcp
if ! have cc || [ ! -e /usr/include/rdma/rdma_cma.h ]; then
    skip "ten thousand connections: cc or librdmacm-dev is not installed"
elif cc -Wall -Wextra -Werror -O1 -o "$work/many" "$here/many.c" -libverbs -lrdmacm > "$work/out" 2>&1; then
    chmod a+rx "$work/many"
    cm "10,000 connections, 200 at a time" '^10000 connections, 200 at a time, ' '^10000 connections, 200 at a time, ' \
        "$work/many" serve @ % 10000 200 -- "$work/many" ask @ % 10000 200 127.72.9.2
    grep -h '^10000 connections' "$work/server" "$work/out"
else
    bad "many.c does not compile"
fi
