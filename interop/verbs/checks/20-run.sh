# What `userdma run` does with programs.
# shellcheck shell=bash disable=SC2154
run -- sh -c 'exit 7' > "$work/out" 2>&1
if [ $? -eq 7 ]; then pass "the program's exit status"; else bad "the program's exit status"; fi
refuses() { # NAME PATTERN PROGRAM
    if run -- "$3" > "$work/out" 2>&1; then bad "$1"; return; fi
    if grep -Eq "$2" "$work/out" && [ "$(wc -l < "$work/out")" -eq 1 ]; then pass "$1"; else bad "$1"; fi
}
if [ "$(id -u)" -eq 0 ]; then
    cp /bin/true "$work/setuid" && chmod 4755 "$work/setuid"
    refuses "a setuid program is refused in one line" 'gains privileges' "$work/setuid"
else
    skip "setuid program: needs root to make one"
fi
if have busybox && ! ldd "$(command -v busybox)" > /dev/null 2>&1; then
    refuses "a static program is refused in one line" 'statically' "$(command -v busybox)"
else
    skip "static program: busybox-static is not installed"
fi
