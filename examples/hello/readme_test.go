package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadme holds the program in the README to the one that is compiled here.
func TestReadme(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("the program in README.md is not that of main.go")
	}
}
