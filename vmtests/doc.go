// Package vmtests tests the library as its users run it: ranks are processes, each
// in a network namespace of its own, and every frame crosses real veth pairs.
// The test binary starts itself again as the ranks' programs. All tests need root.
package vmtests
