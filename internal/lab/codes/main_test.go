package main

import (
	"os"
	"testing"
)

// The committed header is what the table gives. This needs no clang, which make check-generated
// compares the programs with.
func TestHeaderIsThatOfTheTable(t *testing.T) {
	got, err := os.ReadFile("../../../bpf/codes.h")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != header() {
		t.Error("bpf/codes.h is not what the table in package wire gives: run make generate, and commit the result")
	}
}
