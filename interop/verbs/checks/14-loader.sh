# Who gets our library: every way to link and to load, against the distribution's library and a renamed copy of it.
# shellcheck shell=bash disable=SC2154
theirs=$(ldconfig -p 2> /dev/null | awk '/libibverbs\.so\.1 / { print $NF; exit }')
names=2
probe() { # NAME COMPILER-ARGUMENTS...
    local name=$1; shift
    if ! cc -Wall -Werror -o "$work/probe" "$here/probe.c" "$@" -ldl > "$work/out" 2>&1; then
        bad "loader: $name: does not link"; return
    fi
    chmod a+rx "$work/probe"
    run --device 127.0.94.1 -- "$work/probe" "$work/libibverbs.so" $names < "$work/symbols" > "$work/out" 2>&1
    if [ $? -eq 0 ] && grep -Eq '^[0-9]{3} symbols are ours$' "$work/out"; then
        pass "loader: $name: $(tail -1 "$work/out")"
    else
        bad "loader: $name"
    fi
}
if have cc && have nm && [ -n "$theirs" ] && [ -e /usr/include/infiniband/verbs.h ]; then
    folder=$(dirname "$(readlink -f "$theirs")")
    # Every public function at every node, the oldest forms too.
    nm -D --defined-only --with-symbol-versions "$theirs" | awk '$2 == "T" { print $NF }' | sed 's/@@/@/' |
        grep -v PRIVATE > "$work/symbols"
    # What wheels bundle: the distribution's library under another name, which the program names.
    mkdir -p "$work/bundle"
    sed 's/libibverbs\.so\.1/libibverbz.so.1/g' "$theirs" > "$work/bundle/libibverbz.so.1"
    chmod -R a+rX "$work/bundle"
    probe "linked" -DLINKED -libverbs
    # What the loader finds by a name that is nobody's SONAME, it looks for in the RPATH first: that is not ours.
    names=1 probe "linked, RPATH to the distribution's" -DLINKED -libverbs -Wl,--disable-new-dtags -Wl,-rpath,"$folder"
    probe "linked, RUNPATH to the distribution's" -DLINKED -libverbs -Wl,--enable-new-dtags -Wl,-rpath,"$folder"
    probe "linked, bound when it starts" -DLINKED -libverbs -Wl,-z,now
    probe "a renamed copy in a wheel, RPATH" -DLINKED -L"$work/bundle" -l:libibverbz.so.1 -Wl,--disable-new-dtags \
        -Wl,-rpath,"$work/bundle"
    probe "a renamed copy in a wheel, RUNPATH" -DLINKED -L"$work/bundle" -l:libibverbz.so.1 -Wl,--enable-new-dtags \
        -Wl,-rpath,"$work/bundle"
    probe "dlopen only"

    # Without LD_PRELOAD: the last handle is closed.
    mkdir -p "$work/alone"
    ln -sf "$work/libibverbs.so" "$work/alone/libibverbs.so.1"
    if cc -Wall -Werror -o "$work/nodelete" "$here/nodelete.c" -ldl -lpthread > "$work/out" 2>&1; then
        chmod a+rx "$work/nodelete"
        if plainly timeout $limit env LD_LIBRARY_PATH="$work/alone" USERDMA_DEVICES=127.0.94.2 "$work/nodelete" \
            > "$work/out" 2>&1 && grep -q '^all is well$' "$work/out"; then
            pass "nodelete.c: the library stays when its last handle is closed"
        else
            bad "nodelete.c"
        fi
    else
        bad "nodelete.c does not compile"
    fi
    # The provider's own references, as the loader resolves them.
    mlx5=$(ldconfig -p | awk '/libmlx5\.so\.1 / { print $NF; exit }')
    if [ -n "$mlx5" ]; then
        run --device 127.0.94.3 -- env LD_DEBUG=bindings "$work/probe" "$work/libibverbs.so" < /dev/null > "$work/bindings" 2>&1
        grep "binding file [^ ]*libmlx5[^ ]* .*to .*\[IBVERBS" "$work/bindings" > "$work/out"
        if [ -s "$work/out" ] && ! grep -v "to $work/libibverbs.so " "$work/out"; then
            pass "loader: libmlx5 binds $(wc -l < "$work/out") symbols, to ours"
        else
            bad "loader: libmlx5"
        fi
    else
        skip "loader: libmlx5 is not installed"
    fi
else
    skip "loader: cc, nm, or libibverbs with its header is not installed"
fi
