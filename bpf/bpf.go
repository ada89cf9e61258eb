// Package bpf holds the XDP programs, compiled and embedded. The C sources are
// the truth about their maps, their counters and the header of a frame.
//
// The classifier sees a frame as the driver hands it over. A VLAN tag that the
// device has already taken off (receive offload) is invisible to it.
package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type counter -type config -type ports -type wire_header Classifier classifier.c -- -O2 -Wall -Werror -mcpu=v3
