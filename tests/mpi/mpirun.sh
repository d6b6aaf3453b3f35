#!/bin/sh
# Runs a program on some ranks of this machine, more than it may have cores.
# Usage: mpirun.sh RANKS PROGRAM [ARGUMENTS]
set -eu
ranks=$1
shift
command -v mpirun >/dev/null || { echo "skipped: there is no mpirun"; exit 77; }
# Open MPI leaks, from modules that are unloaded at the end and so have no name to suppress; that we do
# not is counted by test_ranks memory.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    # Ranks of one machine need no network, and leave their core to others while they wait.
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
fi
exec mpirun -np "$ranks" "$@"
