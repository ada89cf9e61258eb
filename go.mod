module github.com/xdprma/xdprma

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/cilium/ebpf v0.22.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
	github.com/zeebo/xxh3 v1.1.0
	golang.org/x/crypto v0.59.0
	golang.org/x/sys v0.50.0
	kernel.org/pub/linux/libs/security/libcap/psx v1.2.78
	pgregory.net/rapid v1.3.0
)

require github.com/klauspost/cpuid/v2 v2.2.10 // indirect

tool (
	github.com/cilium/ebpf/cmd/bpf2go
	github.com/xdprma/xdprma/internal/lab/progress
)
