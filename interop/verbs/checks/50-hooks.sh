# Part of run-all: what programs find of our device where they look for one, in /sys and /dev, and that they leave its
# descriptors alone. Everything that is printed is checked.
# shellcheck shell=bash disable=SC2154

hooks_host=0
# One program on an address of its own.
hooked() { # NAME PATTERNS... -- COMMAND...
    local name=$1 arguments=(); shift
    while [ "$1" != -- ]; do arguments+=("$1"); shift; done
    shift
    hooks_host=$((hooks_host + 1))
    one "$name" "${arguments[@]}" -- --device 127.0.75.$hooks_host -- "$@"
}
copies() { find /dev/shm /tmp "${XDG_RUNTIME_DIR:-/nonexistent}" -maxdepth 1 -name 'userdma-sys.*' 2> /dev/null | sort; }

copies_before=$(copies)

if have cc && [ -e /usr/include/infiniband/verbs.h ]; then
    for program in paths daemon; do
        if cc -Wall -Wextra -Werror -O1 -o "$work/$program" "$here/$program.c" -libverbs -lpthread -ldl > "$work/out" 2>&1; then
            chmod a+rx "$work/$program"
            hooked "$program.c" '^all is well$' -- "$work/$program"
        else
            bad "$program.c does not compile"
        fi
    done
else
    skip "hooks, C programs: cc or libibverbs-dev is not installed"
fi

# ---- ordinary programs ----

hooked "ls" '^roce_lo$' -- ls /sys/class/infiniband
hooked "ls -lR, as a link and its directory" '^l.* roce_lo -> \.\./\.\./devices/platform/' '^crw-rw-rw- .* uverbs0$' \
    -- ls -lR /sys/class/infiniband /dev/infiniband
hooked "cat" '^0000:0000:0000:0000:0000:ffff:7f00:' '^RoCE v2$' '^lo$' '^4: ACTIVE$' -- sh -c \
    'cd /sys/class/infiniband/roce_lo/ports/1 && cat gids/0 gid_attrs/types/0 gid_attrs/ndevs/0 state'
hooked "pwd and cd .." '^/sys/class/infiniband/roce_lo$' '^/sys/class$' -- \
    sh -c 'cd /sys/class/infiniband/roce_lo && pwd && cd ../.. && pwd -P'
if have find; then
    hooked "find" '^/sys/class/infiniband/roce_lo/ports/1/pkeys/0$' '/hw_counters/out_of_seq_request$' -- \
        find /sys/class/infiniband/roce_lo/
    hooked "readlink -f" '^/sys/devices/platform/userdma_infiniband/roce_lo/infiniband/roce_lo$' -- \
        readlink -f /sys/class/infiniband/roce_lo
fi
if have python3; then
    cat > "$work/look.py" <<'PYTHON'
import glob, os, pathlib, stat
base = pathlib.Path("/sys/class/infiniband")
assert [p.name for p in base.iterdir()] == ["roce_lo"], list(base.iterdir())
device = base / "roce_lo"
assert str(device.resolve()).startswith("/sys/devices/platform/"), device.resolve()
assert (device / "ports/1/link_layer").read_text() == "Ethernet\n"
assert glob.glob("/sys/class/infiniband/*/ports/*/gids/*") == [str(device / "ports/1/gids/0")]
assert sorted(os.listdir("/sys/class/infiniband_verbs")) == ["abi_version", "uverbs0"]
assert os.path.exists(device / "device/net") and os.listdir(device / "device/net") == ["lo"]
assert os.readlink(device).startswith("../../devices/platform/")
assert os.path.realpath(device / "device/net/lo") == "/sys/devices/virtual/net/lo"
node = os.lstat("/dev/infiniband/uverbs0")
assert stat.S_ISCHR(node.st_mode) and os.access("/dev/infiniband/uverbs0", os.R_OK | os.W_OK)
assert os.path.realpath("/dev/infiniband/uverbs0") == "/dev/infiniband/uverbs0"
walked = sum(len(files) for _, _, files in os.walk(device, followlinks=False))
assert walked > 50, walked
assert not os.path.exists("/sys/class/infiniband/other") and not os.path.exists("/sys/class/infiniband_srp")
os.chdir("/sys/class/infiniband/roce_lo")
assert os.getcwd() == "/sys/devices/platform/userdma_infiniband/roce_lo/infiniband/roce_lo", os.getcwd()
print("all is well")
PYTHON
    chmod a+r "$work/look.py"
    hooked "Python's os, glob and pathlib" '^all is well$' -- python3 "$work/look.py"
else
    skip "Python on the tree: python3 is not installed"
fi

# ---- programs that look for devices ----

if have ucx_info; then
    hooked "ucx_info -d" 'Transport: rc_verbs' 'Transport: ud_verbs' 'Device: roce_lo:1' -- ucx_info -d
else
    skip "ucx_info (ucx-utils) is not installed"
fi
if have fi_info; then
    hooked "fi_info -p verbs" '^provider: verbs' 'domain: roce_lo' -- fi_info -p verbs
else
    skip "fi_info (libfabric-bin) is not installed"
fi
if have ibstat; then
    hooked "ibstat" "^CA 'roce_lo'" 'State: Active' 'Physical state: LinkUp' 'Rate: 10' 'Link layer: Ethernet' -- \
        ibstat
    hooked "ibstatus" "^Infiniband device 'roce_lo' port 1 status:" '4: ACTIVE' '10 Gb/sec' -- ibstatus
else
    skip "ibstat, ibstatus (infiniband-diags) are not installed"
fi
if have ibv_devinfo; then
    hooked "ibv_devinfo finds a board" 'board_id:.*userdma' -- ibv_devinfo
fi
if have lstopo-no-graphics; then
    hooked "hwloc" 'OpenFabrics.*"roce_lo"|roce_lo' -- lstopo-no-graphics --whole-io --of console
else
    skip "lstopo-no-graphics (hwloc-nox) is not installed"
fi

# ---- a host with devices of its own: a made-up one in a mount namespace ----

real() { # NAME PATTERNS... -- COMMAND...    with what is wanted in $with_real
    local name=$1 patterns=() p; shift
    while [ "$1" != -- ]; do patterns+=("$1"); shift; done
    shift
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t tmpfs none /sys/class && cd /sys/class && mkdir -p infiniband/mlx5_9 infiniband_verbs/uverbs4 &&
        echo "1: CA" > infiniband/mlx5_9/node_type && exec "$@"' sh \
        setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs env USERDMA_WITH_REAL="$with_real" \
        timeout $limit "$userdma" run --device 127.0.75.97 -- "$@" > "$work/out" 2>&1 || { bad "$name"; return; }
    for p in "${patterns[@]}"; do
        case $p in
            '!'*) if grep -Eq -- "${p#!}" "$work/out"; then echo "there is: ${p#!}" >> "$work/out"; bad "$name"; return; fi ;;
            *) if ! grep -Eq -- "$p" "$work/out"; then echo "nothing matches: $p" >> "$work/out"; bad "$name"; return; fi ;;
        esac
    done
    pass "$name"
}
if [ "$(id -u)" -eq 0 ] && unshare -m mount -t tmpfs none /sys/class 2> /dev/null; then
    with_real=0
    real "the host's devices are hidden" '^roce_lo$' '^uverbs0$' '!mlx5_9' '!uverbs4' -- \
        ls /sys/class/infiniband /sys/class/infiniband_verbs
    with_real=1
    real "USERDMA_WITH_REAL=1 shows them, and numbers ours behind them" '^roce_lo$' '^mlx5_9$' '^uverbs4$' '^uverbs5$' \
        '^1: CA$' '!uverbs0' -- \
        sh -c 'ls /sys/class/infiniband /sys/class/infiniband_verbs && cat /sys/class/infiniband/mlx5_9/node_type'
    if have ibv_devices; then
        real "that they cannot be opened is said" 'roce_lo' 'USERDMA_WITH_REAL: mlx5_9 can be seen' -- ibv_devices
    fi
else
    skip "a host with devices: needs root and a mount namespace to make one up"
fi

# ---- silent elsewhere, and nothing left behind ----

if run --device 127.0.75.99 -- sh -c 'true; ls / > /dev/null; cat /etc/hostname > /dev/null' > "$work/out" 2>&1 &&
    [ ! -s "$work/out" ]; then pass "programs without RDMA see nothing of us"; else bad "silence"; fi
sleep 0.1
if [ "$(copies)" = "$copies_before" ]; then
    pass "nothing is left in /dev/shm"
else
    copies > "$work/out"; bad "copies of /sys are left"
fi
run --device 127.0.75.100 -- sh -c 'cd /sys/class/infiniband; kill -9 $$' > /dev/null 2>&1
left=$(copies)
run --device 127.0.75.101 -- ls /sys/class/infiniband > "$work/out" 2>&1
if [ "$left" != "$copies_before" ] && [ "$(copies)" = "$copies_before" ]; then
    pass "what a killed process leaves, the next one removes"
else
    { echo "before: $copies_before"; echo "after the kill: $left"; echo "then: $(copies)"; } > "$work/out"
    bad "what a killed process leaves"
fi
