#!/usr/bin/env bash
# Two hosts with addresses of their own: network namespaces joined by a pair of veth, over TCP.
# Usage: hosts.sh PROGRAM [ARGUMENTS], with two ranks on each host
# The link goes down as soon as there is a file of the name PLSH_TEST_CUT, if that is set.
set -euo pipefail
skip() { echo "skipped: $*"; exit 77; }
command -v mpirun >/dev/null || skip "there is no mpirun"
mpirun --version 2>/dev/null | grep -q 'Open MPI' || skip "this mpirun is not that of Open MPI"
command -v ip >/dev/null || skip "there is no ip (iproute2)"
a=plsh-a-$$ b=plsh-b-$$
folder=$(mktemp -d)
clean() {
    [ -z "${cutter:-}" ] || kill "$cutter" 2>/dev/null || true
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
{ ip netns add "$a" && ip netns add "$b"; } 2>/dev/null || skip "no network namespaces here"
unshare --uts true 2>/dev/null || skip "no names of hosts of their own here"
ip -n "$a" link add veth0 type veth peer name veth0 netns "$b" 2>/dev/null || skip "no veth here"
ip -n "$a" address add 10.77.0.1/24 dev veth0
ip -n "$b" address add 10.77.0.2/24 dev veth0
for host in "$a" "$b"; do
    ip -n "$host" link set lo up
    ip -n "$host" link set veth0 up
done

# What mpirun starts in the place of ssh: `agent HOST COMMAND..` runs it on the second host.
cat >"$folder/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c 'hostname plsh-b; exec sh -c "\$0"' "\$*"
AGENT
chmod +x "$folder/agent"
if [ -n "${PLSH_TEST_CUT:-}" ]; then
    { while [ ! -e "$PLSH_TEST_CUT" ]; do sleep 0.05; done; ip -n "$a" link set veth0 down; } &
    cutter=$!
fi
# shellcheck disable=SC2016 # for the shell that it starts
PLSH_THREADS=${PLSH_THREADS:-1} \
    ASAN_OPTIONS=detect_leaks=0 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    ip netns exec "$a" unshare --uts sh -c 'hostname plsh-a; exec "$0" "$@"' \
    mpirun --host 10.77.0.1:2,10.77.0.2:2 --oversubscribe -np 4 \
    --mca plm_rsh_agent "$folder/agent" --mca btl self,tcp --mca btl_tcp_if_include veth0 \
    --mca oob_tcp_if_include veth0 --mca hwloc_base_binding_policy none \
    --mca mpi_yield_when_idle 1 -x PLSH_THREADS -x ASAN_OPTIONS "$@"
