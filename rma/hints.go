package rma

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
)

// merge returns what several infos say together: of a key that is there twice, the later value.
func merge(info []Info) Info {
	if len(info) < 2 {
		for _, i := range info {
			return i
		}
		return nil
	}
	all := Info{}
	for _, i := range info {
		maps.Copy(all, i)
	}
	return all
}

// NoLocks promises that the window is not locked (info key no_locks). If all ranks say so,
// Free does not wait for the others.
func NoLocks() Info { return Info{"no_locks": "true"} }

// Unordered allows accumulates from one origin to one target to take effect in any order
// (info key accumulate_ordering).
func Unordered() Info { return Info{"accumulate_ordering": "none"} }

// Ordered has all operations of this rank at a target take effect in the order issued, puts and gets
// as well as accumulates (info key xdprma_ordered). A get returns what was put before it, without a
// flush between. A flush is still what says that an operation is complete. Each rank's value holds for
// its own operations. Operations of other ranks, at other targets, and on other windows are not ordered by it, and
// neither are those of goroutines that do not order their calls. SetInfo may change the key: operations
// issued while it is true are in order among each other; an earlier one may take effect after them unless it
// was flushed. The price is that a frame that is lost holds up all those after it.
func Ordered() Info { return Info{windows.KeyOrdered: "true"} }

// SameOp promises that concurrent accumulates of an element use the same operator, and no
// NoOp beside it (info key accumulate_ops). Checking mode holds the program to it.
func SameOp() Info { return Info{"accumulate_ops": "same_op"} }

// SameSize promises that the window has the same size at all ranks (info key same_size); it
// cannot be created otherwise.
func SameSize() Info { return Info{"same_size": "true"} }

// Noncontiguous allows the memory of ranks of AllocateShared to lie apart from each other (info key
// alloc_shared_noncontig).
func Noncontiguous() Info { return Info{"alloc_shared_noncontig": "true"} }

// MinAlignment has the library align the memory that it allocates to a number of bytes, a power of
// two (info key mpi_minimum_memory_alignment).
func MinAlignment(bytes int) Info { return Info{"mpi_minimum_memory_alignment": strconv.Itoa(bytes)} }

// Unattended says whether the XDP program is to reach the window, so that small calls do
// without the target's process (info key xdprma_express). By default it does where it can, up
// to Limits.ExpressWindow bytes.
func Unattended(wanted bool) Info {
	if wanted {
		return Info{windows.KeyExpress: "true"}
	}
	return Info{windows.KeyExpress: "false"}
}

// InClear allows small requests for the window to travel unencrypted in a job at the level of security
// seal, so that XDP programs execute them (info key xdprma_in_clear). They are authenticated even so.
// Each rank's value holds for its own requests and for those to its memory. At the other levels it
// changes nothing.
func InClear() Info { return Info{windows.KeyInClear: "true"} }

// Access says what other ranks of the window may do with this rank's memory (info key
// xdprma_access): those in except what is said there, by their ranks in the communicator, and all
// others what others says. The default is MayAll for all. Each rank speaks for its own memory, and may
// itself do everything there. The target refuses what an origin has no right to, and the call fails
// at the origin with class ErrAccess: a lock, and what returns a value, itself, a put or accumulate
// at the flush after it. A lock may fail late, with the first call under it that waits; then all calls
// under it fail. If ModeNoCheck is asserted, no lock is asked for, and nobody needs MayLock.
//
// If a rank lets others do less than all, ranks of one host use frames for the window, because memory
// that they map cannot be guarded; AllocateShared fails with class ErrArg.
func Access(others Rights, except map[int]Rights) Info {
	text := others.String()
	for _, rank := range slices.Sorted(maps.Keys(except)) {
		text += fmt.Sprintf("; %d: %v", rank, except[rank])
	}
	return Info{windows.KeyAccess: text}
}

// Counters gives this rank's window n counters of notifications, from 0 to 65536 (info key
// xdprma_counters). The default is none. See Location.Notify.
func Counters(n int) Info { return Info{windows.KeyCounters: strconv.Itoa(n)} }

// CheckConflicts has the window look for conflicting accesses (info key
// xdprma_check_conflicts); see Config.Check.
func CheckConflicts() Info { return Info{"xdprma_check_conflicts": "true"} }
