//go:build race

package testenv

func init() { buildFlags = append(buildFlags, "-race") }
