#!/usr/bin/env bash
# Measures MPICH, Open MPI and xdprma in turn, in the same two namespaces joined by
# a veth pair, and prints medians and ratios. Run it as root: make bench-peers.
# Environment: MTU (1500), ROUNDS (3), INSTALL=1 installs the Debian packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mtu=${MTU:-1500}
rounds=${ROUNDS:-3}
packages=(mpich libmpich-dev openmpi-bin libopenmpi-dev)

[ "$(id -u)" = 0 ] || { echo "run this as root: it makes network namespaces"; exit 1; }
if ! command -v mpicc.mpich >/dev/null || ! command -v mpicc.openmpi >/dev/null; then
	if [ "${INSTALL:-}" != 1 ]; then
		echo "MPICH and Open MPI are needed: apt-get install ${packages[*]}, or make bench-peers INSTALL=1"
		exit 1
	fi
	apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
fi

a=xrpeer-$$-a
b=xrpeer-$$-b
work=$(mktemp -d)
cleanup() {
	ip netns del "$a" 2>/dev/null || true
	ip netns del "$b" 2>/dev/null || true
	rm -rf "$work" "/etc/netns/$a" "/etc/netns/$b"
	rmdir /etc/netns 2>/dev/null || true
}
trap cleanup EXIT

ip netns add "$a"
ip netns add "$b"
ip link add peer0 mtu "$mtu" netns "$a" type veth peer name peer0 mtu "$mtu" netns "$b"
ip -n "$a" addr add 10.79.0.1/24 dev peer0
ip -n "$b" addr add 10.79.0.2/24 dev peer0
for n in "$a" "$b"; do
	mkdir -p "/etc/netns/$n"
	printf '127.0.0.1 localhost\n10.79.0.1 %s\n10.79.0.2 %s\n' "$a" "$b" >"/etc/netns/$n/hosts"
	ip -n "$n" link set lo up
	ip -n "$n" link set peer0 up
done
for n in "$a" "$b"; do
	for _ in $(seq 50); do # until there is a carrier
		ip -n "$n" -o link show peer0 | grep -q 'state UP' && break
		sleep 0.1
	done
done

mpicc.mpich -O2 -o "$work/mpich" "$here/mpi/rma.c"
mpicc.openmpi -O2 -o "$work/openmpi" "$here/mpi/rma.c"
(cd "$top" && go build -o "$work/xdprma" ./cmd/xdprma)

# inside runs a launcher in the first namespace, for at most LIMIT seconds.
inside() {
	timeout -k 5 "$1" ip netns exec "$a" unshare --uts bash -c "hostname $a; $2" 2>"$work/errors" </dev/null || {
		echo "failed: $(grep -v '^[-=]*$' "$work/errors" | tail -n 1 | cut -c1-100)" >&2
	}
}

# figures keeps the lines that rma.c wrote, and puts the library's name in front.
figures() { { grep -E '^[a-z-]+ [0-9]+ [0-9]+ [0-9.]+ [A-Za-z/]+$' || true; } | sed "s/^/$1 /"; }

mpich() { # ranks a namespace
	inside 60 "UCX_TLS=tcp,self MPIR_CVAR_NOLOCAL=1 mpiexec.hydra -launcher ssh -launcher-exec $here/mpi/agent.sh -hosts $a,$b -ppn $1 -n $((2 * $1)) $work/mpich"
}

openmpi() {
	inside 60 "mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent $here/mpi/agent.sh --host $a:$1,$b:$1 -np $((2 * $1)) --mca btl tcp,self --mca pml ob1 --mca osc rdma,pt2pt --mca btl_tcp_if_include 10.79.0.0/24 --mca oob_tcp_if_include 10.79.0.0/24 $work/openmpi"
}

# ours runs the tests named, as two ranks in the same namespaces.
ours() {
	local rank pids=() n=("$a" "$b")
	local env="XDPRMA_SIZE=2 XDPRMA_JOB=$(printf %x $((RANDOM * 65536 + RANDOM + 1))) XDPRMA_RENDEZVOUS=unix:$work/rendezvous XDPRMA_INTERFACE=peer0"
	for rank in 0 1; do
		# shellcheck disable=SC2086
		timeout -k 5 100 ip netns exec "${n[$rank]}" env $env XDPRMA_RANK=$rank XDPRMA_ADDRESS=10.79.0.$((rank + 1)) \
			"$work/xdprma" perf "$@" --json >"$work/ours.$rank" 2>>"$work/errors" </dev/null &
		pids+=($!)
	done
	wait "${pids[@]}" || echo "xdprma failed: $(tail -n 1 "$work/errors" | cut -c1-200)" >&2
	cat "$work/ours.0"
}

for round in $(seq "$rounds"); do
	echo "round $round of $rounds" >&2
	mpich 1 | figures mpich >>"$work/figures"
	openmpi 1 | figures openmpi >>"$work/figures"
	{
		ours put-latency get-latency fetch-and-op-latency compare-and-swap-latency lock-put-unlock \
			put-rate fetch-and-op-rate progress --bytes 8
		ours put-bandwidth get-bandwidth --bytes 1048576
	} >>"$work/ours.json"
	mpich 4 | figures mpich >>"$work/figures"
	openmpi 4 | figures openmpi >>"$work/figures"
	"$work/xdprma" perf scale --ranks 8 --rounds 1 --json 2>/dev/null >>"$work/ours.json"
done
(cd "$top" && go run ./bench/peers -mtu "$mtu" "$work/figures" "$work/ours.json")
