#!/usr/bin/env bash
# Measures MPICH, Open MPI and xdprma in turn, test by test, in the same two
# namespaces joined by a veth pair, and prints medians over rounds and ratios.
# Run it as root: make bench-peers. Environment: MTU (1500), ROUNDS (3),
# OUT (a file for the results as JSON), INSTALL=1 installs the Debian packages, OFFLOADS=off
# has the kernel cut long messages into frames before the veth, as they travel on a wire,
# BUSY (0) is how many processes compute meanwhile, on whichever processors they get.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mtu=${MTU:-1500}
rounds=${ROUNDS:-3}
offloads=${OFFLOADS:-on}
busy=${BUSY:-0}
limit=20 # seconds that one test of one library may take
packages=(mpich libmpich-dev openmpi-bin libopenmpi-dev gcc libc6-dev)
tools=(mpicc.mpich mpiexec.hydra mpicc.openmpi mpirun.openmpi gcc)
[ "$offloads" = on ] || packages+=(ethtool) tools+=(ethtool)

[[ $busy =~ ^[0-9]{1,2}$ ]] || { echo "BUSY is '$busy', it must be a number of processes, at most 99"; exit 1; }
[ "$(id -u)" = 0 ] || { echo "run this as root: it makes network namespaces"; exit 1; }
for tool in "${tools[@]}"; do
	command -v $tool >/dev/null && continue
	if [ "${INSTALL:-}" != 1 ]; then
		echo "$tool is missing: apt-get install ${packages[*]}, or make bench-peers INSTALL=1"
		exit 1
	fi
	apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
	break
done

# What an earlier run left when it was killed.
for old in $(ip netns list | sed -n 's/^\(xrpeer-[0-9]*-[ab]\).*/\1/p'); do
	pid=${old#xrpeer-} pid=${pid%-*}
	[ -e "/proc/$pid" ] || { ip netns del "$old" && rm -rf "/etc/netns/$old"; }
done

a=xrpeer-$$-a
b=xrpeer-$$-b
work=$(mktemp -d)
computing=()
cleanup() {
	[ ${#computing[@]} = 0 ] || kill "${computing[@]}" 2>/dev/null || true
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
	mkdir -p "/etc/netns/$n" # what `ip netns exec` shows as /etc
	printf '127.0.0.1 localhost\n10.79.0.1 %s\n10.79.0.2 %s\n' "$a" "$b" >"/etc/netns/$n/hosts"
	ip -n "$n" link set lo up
	ip -n "$n" link set peer0 up
	[ "$offloads" = on ] || ip netns exec "$n" ethtool -K peer0 tso off gso off gro off tx-udp-segmentation off
done
for n in "$a" "$b"; do
	for _ in $(seq 50); do # until there is a carrier
		ip -n "$n" -o link show peer0 | grep -q 'state UP' && break
		sleep 0.1
	done
done

mpicc.mpich -O2 -o "$work/mpich" "$here/mpi/rma.c"
mpicc.openmpi -O2 -o "$work/openmpi" "$here/mpi/rma.c"
(cd "$top" && go build -o "$work/xdprma" ./cmd/xdprma && go build -o "$work/peers" ./cmd/peers)

# inside LIBRARY TEST COMMAND runs a launcher in the first namespace. Its processes
# have a pid namespace, in which they end with it, and shared memory, of their own.
# How a library ends after it has given its figure is its own affair.
inside() {
	local status=0
	timeout -k 5 $limit ip netns exec "$a" unshare --uts --pid --fork --kill-child --mount-proc \
		bash -c "hostname $a; mount -t tmpfs none /dev/shm; export TMPDIR=$work; $3" >"$work/output" 2>"$work/errors" </dev/null || status=$?
	grep -E '^[a-z-]+( [0-9.]+){5}$' "$work/output" | sed "s/^/$round $1 /" >>"$work/figures" || failure "$1" "$2" $status
}

# failure LIBRARY TEST STATUS keeps what it said about itself.
failure() {
	local said
	said=$(grep -hiE 'error|fail|abort|unable|assert|signal' "$work/errors" | head -n 1 | cut -c1-120) || true
	[ "$3" != 124 ] || said="no end after $limit s"
	echo "$1 $2 ${said:-status $3}" >>"$work/failures"
}

mpich() { # ranks a namespace, test, bytes, window
	inside mpich "$2" "UCX_TLS=tcp,self MPIR_CVAR_NOLOCAL=1 mpiexec.hydra -launcher ssh -launcher-exec $here/mpi/agent.sh \
		-hosts $a,$b -ppn $1 -n $((2 * $1)) $work/mpich $2 $3 $4"
}

# Where ranks share processors, Open MPI has to be told to yield them.
openmpi() {
	inside openmpi "$2" "mpirun.openmpi --allow-run-as-root --bind-to none --mca mpi_yield_when_idle $(($1 > 1)) \
		--mca plm_rsh_agent $here/mpi/agent.sh --host $a:$1,$b:$1 -np $((2 * $1)) --mca btl tcp,self --mca pml ob1 \
		--mca osc rdma,pt2pt --mca btl_tcp_if_include 10.79.0.0/24 --mca oob_tcp_if_include 10.79.0.0/24 $work/openmpi $2 $3 $4"
}

# ours TEST BYTES WINDOW runs a test as two ranks in the same namespaces.
ours() {
	local rank pids=() n=("$a" "$b") status=0
	local env=(XDPRMA_SIZE=2 "XDPRMA_JOB=$(printf %x $((RANDOM * 65536 + RANDOM + 1)))" "XDPRMA_RENDEZVOUS=unix:$work/rendezvous" XDPRMA_INTERFACE=peer0)
	for rank in 0 1; do
		timeout -k 5 $limit ip netns exec "${n[$rank]}" env "${env[@]}" XDPRMA_RANK=$rank XDPRMA_ADDRESS=10.79.0.$((rank + 1)) \
			"$work/xdprma" perf "$1" --bytes "$2" --window "$3" --json >"$work/ours.$rank" 2>"$work/ours-errors.$rank" </dev/null &
		pids+=($!)
	done
	for rank in 0 1; do wait "${pids[$rank]}" || status=$?; done
	cat "$work"/ours-errors.* >"$work/errors"
	[ $status = 0 ] || failure xdprma "$1" $status
	sed "s/^/$round /" "$work/ours.0" >>"$work/ours"
}

# floor takes the bare echo, which tells what the machine's processors are worth now.
floor() {
	"$work/xdprma" perf floor --bytes 8 --mtu "$mtu" --json 2>/dev/null | sed "s/^/$round /" >>"$work/ours" || true
}

for _ in $(seq "$busy"); do
	setpriv --pdeathsig KILL bash -c 'while :; do :; done' &
	computing+=($!)
done

: >"$work/figures"
: >"$work/failures"
: >"$work/ours"
for round in $(seq "$rounds"); do
	floor
	while read -r ranks test bytes window own; do
		[ ! -t 2 ] || printf '\r\033[Kround %d of %d: %s' "$round" "$rounds" "$test" >&2
		if [ "$ranks" = 1 ]; then
			ours "$own" "$bytes" "$window"
		fi
		mpich "$ranks" "$test" "$bytes" "$window"
		openmpi "$ranks" "$test" "$bytes" "$window"
	done < <("$work/peers" list)
	"$work/xdprma" run -n 8 --mtu "$mtu" --timeout 60s -- "$work/xdprma" perf scale --bytes 8 --json </dev/null 2>"$work/errors" |
		sed "s/^\[0\] /$round /" >>"$work/ours" || failure xdprma scale $?
done
[ ! -t 2 ] || printf '\r\033[K' >&2
for pid in "${computing[@]}"; do
	kill -0 "$pid" || { echo "process $pid was to compute beside the measurement, and has ended"; exit 1; }
done
[ ${#computing[@]} = 0 ] || echo "beside ${#computing[@]} processes that compute"
"$work/peers" table "$mtu" "$work" ${OUT:+"$OUT"}
