//go:build amd64 || arm64

package userspace

// pause tells the processor that this thread spins, so that another one on the
// same core, a peer's perhaps, gets on with its work.
func pause()
