// Package slot has the program that keeps a rank's place in a dispatcher of libxdp.
// It is for tests, and no API.
package slot

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel program ../slot.c -- -O2 -Wall -Werror -mcpu=v3

// Object returns the file that xdp-loader loads.
func Object() []byte { return _ProgramBytes }
