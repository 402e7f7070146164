# rdma-core's own suite.
# shellcheck shell=bash disable=SC2154
plainly timeout 1800 "$work/pyverbs" "$userdma" > "$work/out" 2>&1
case $? in
    0) pass "$(tail -1 "$work/out"), as expected" ;;
    77) skip "$(tail -1 "$work/out")" ;;
    *) bad "pyverbs: other results than expected" ;;
esac
