// Package bpf holds the XDP programs, compiled and embedded, for package loader. It is no API:
// its names are generated from the C sources and change with them, without notice. It stands
// beside the sources, where the compiler's output is embedded and checked against them.
// Programs use package loader.
//
// The C sources are the truth about the maps of the programs, their counters and the header of a
// frame. Package internal/protocol/wire is that about records: codes.h is made of its table.
//
// Classifier and Express are the same program with the same maps, names and types; Express
// executes small requests as well. Unrolled is Express without loops, for processes without
// CAP_PERFMON. Each is loaded into a ClassifierObjects. Shared has a switch and an executor, which serve several ranks
// by XDP; the same program stands at tc, too.
//
// The classifier sees a frame as the driver hands it over. It leaves frames of VLANs to the kernel. A
// VLAN tag that the device has already taken off (receive offload) is invisible to it.
package bpf

//go:generate go run ../internal/lab/codes codes.h
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type counter -type config -type hello_config -type address -type ports -no-global-types Classifier classifier.c -- -O2 -fno-strict-aliasing -Wall -Werror -mcpu=v3
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -no-global-types Express classifier.c -- -O2 -fno-strict-aliasing -Wall -Werror -mcpu=v3 -DEXECUTES
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -no-global-types Unrolled classifier.c -- -O2 -fno-strict-aliasing -Wall -Werror -mcpu=v3 -DEXECUTES -DUNROLL -mllvm -pragma-unroll-threshold=1000000
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type place -no-global-types Shared shared.c -- -O2 -fno-strict-aliasing -Wall -Werror -mcpu=v3 -DEXECUTES
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -no-global-types SharedTCX shared.c -- -O2 -fno-strict-aliasing -Wall -Werror -mcpu=v3 -DEXECUTES -DTCX
