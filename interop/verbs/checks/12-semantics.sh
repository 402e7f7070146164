# What programs rely on beside the data path: cancellation, signals, fork and exec, ends; and what calls answer.
# shellcheck shell=bash disable=SC2154
if have cc && [ -e /usr/include/infiniband/verbs.h ]; then
    net=91
    for program in threads processes answers; do
        if cc -Wall -Werror -O1 -o "$work/$program" "$here/$program.c" -libverbs -lpthread > "$work/out" 2>&1; then
            chmod a+rx "$work/$program"
            one "$program.c" '^all is well$' -- --device 127.0.$net.1 --device 127.0.$net.2 -- "$work/$program"
        else
            bad "$program.c does not compile"
        fi
        net=$((net + 1))
    done
else
    skip "semantics: cc or libibverbs-dev is not installed"
fi
