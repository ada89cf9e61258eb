//go:build race

package vmtests

// With the race detector the ranks take five times as long.
func init() { defaultSeeds = 40 }
