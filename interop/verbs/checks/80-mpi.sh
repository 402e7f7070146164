# Open MPI and MPICH over UCX over verbs: a ring, allreduce and alltoall, every byte checked. Shared memory is off, so that the
# device is really used.
# shellcheck shell=bash disable=SC2154
ucx_env=(UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=roce_lo:1 UCX_WARN_UNUSED_ENV_VARS=n)
mpi() { # NAME RANKS -- LAUNCHER...
    local name=$1 ranks=$2; shift 3
    plainly env HOME="$work/home" "${ucx_env[@]}" timeout $limit "$userdma" run -- "$@" > "$work/out" 2>&1
    local status=$?
    if [ $status -eq 0 ] && grep -q "^all is well, $ranks ranks\$" "$work/out"; then
        pass "$name, $ranks ranks"
    else
        echo "status $status" >> "$work/out"; bad "$name, $ranks ranks"
    fi
}
mkdir -p "$work/home"; chmod 777 "$work/home"
mpi_program() { # FLAVOUR
    mpicc."$1" -O1 -Wall -Werror -o "$work/mpi.$1" "$here/mpi.c" > "$work/out" 2>&1 && chmod a+rx "$work/mpi.$1"
}
if ! have mpicc.openmpi || ! have ucx_perftest; then
    skip "Open MPI: libopenmpi-dev or UCX is not installed"
elif ! mpi_program openmpi; then
    bad "Open MPI: mpi.c does not compile"
else
    openmpi=(mpirun.openmpi --oversubscribe --mca pml ucx --mca osc ucx --mca btl '^vader,tcp,openib,uct' --mca plm_rsh_agent false)
    mpi "Open MPI" 2 -- "${openmpi[@]}" -n 2 "$work/mpi.openmpi"
    mpi "Open MPI" 4 -- "${openmpi[@]}" -n 4 "$work/mpi.openmpi"
    if [ "${FULL:-0}" = 1 ]; then mpi "Open MPI" 64 -- "${openmpi[@]}" -n 64 "$work/mpi.openmpi" 2048; fi
fi
if ! have mpicc.mpich || ! have ucx_perftest; then
    skip "MPICH: libmpich-dev or UCX is not installed"
elif ! mpi_program mpich; then
    bad "MPICH: mpi.c does not compile"
else
    mpich=(env MPIR_CVAR_NOLOCAL=1 mpirun.mpich -launcher fork)
    mpi "MPICH" 2 -- "${mpich[@]}" -n 2 "$work/mpi.mpich"
    mpi "MPICH" 4 -- "${mpich[@]}" -n 4 "$work/mpi.mpich"
fi
