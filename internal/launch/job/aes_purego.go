//go:build purego

package job

// computesAES reports false: a program that is built with this tag uses no such instructions.
func computesAES() bool { return false }
