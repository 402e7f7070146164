# The library itself: its symbols, and C programs of ours.
# shellcheck shell=bash disable=SC2154
symbols() { # of the distribution's library and of ours: what programs and providers bind to
    local theirs
    theirs=$(ldconfig -p | awk '/libibverbs\.so\.1 / { print $NF; exit }')
    [ -n "$theirs" ] || return 2
    nm -D --defined-only --with-symbol-versions "$theirs" | awk '{ print $NF }' | grep -v '^IBVERBS_' | sed 's/@@/@/' |
        grep -Ev '@IBVERBS_PRIVATE_' | sort > "$work/theirs"
    nm -D --defined-only --with-symbol-versions "$theirs" | awk '{ print $NF }' | grep '@IBVERBS_PRIVATE_' |
        sed 's/@.*//' | sort > "$work/theirs.private"
    nm -D --defined-only --with-symbol-versions "$work/libibverbs.so" | awk '{ print $NF }' | sed 's/@@/@/' | sort > "$work/ours"
    comm -23 "$work/theirs" "$work/ours" > "$work/out"
    for node in 25 33 34 57 59 64; do
        sed "s/\$/@IBVERBS_PRIVATE_$node/" "$work/theirs.private" | sort | comm -23 - "$work/ours" >> "$work/out"
    done
    [ ! -s "$work/out" ]
}
if have nm; then
    symbols
    case $? in
        0) pass "every symbol of the distribution's library, with its version" ;;
        2) skip "symbols: the distribution's libibverbs is not installed" ;;
        *) bad "symbols: missing" ;;
    esac
else
    skip "symbols: nm is not installed"
fi

if have cc && [ -e /usr/include/infiniband/verbs.h ]; then
    for program in loader objects srq ud; do
        if cc -Wall -Werror -O1 -o "$work/$program" "$here/$program.c" -libverbs -lpthread -ldl > "$work/out" 2>&1; then
            chmod a+rx "$work/$program"
            one "$program.c" '^all is well$' -- --device 127.0.33.1 --device 127.0.33.2 -- "$work/$program"
        else
            bad "$program.c does not compile"
        fi
    done
else
    skip "C programs: cc or libibverbs-dev is not installed"
fi
