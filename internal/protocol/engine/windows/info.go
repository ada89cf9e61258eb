package windows

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/xdprma/xdprma/internal/spelling"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// KeyExpress is the key of the library's own that says whether the XDP program is to reach
// the window, and of windows up to how many bytes.
const KeyExpress = "xdprma_express"

// KeyInClear is the key of the library's own that says whether requests for the window may travel
// unencrypted in a job that encrypts frames, so that the XDP program executes them.
const KeyInClear = "xdprma_in_clear"

// KeyCounters is the key of the library's own that says how many counters of notifications a rank's
// window has.
const KeyCounters = "xdprma_counters"

// KeyAccess is the key of the library's own that says what other ranks may do with a rank's
// memory.
const KeyAccess = "xdprma_access"

// KeyOrdered is the key of the library's own that says whether a rank's operations take effect in the
// order issued.
const KeyOrdered = "xdprma_ordered"

// The other keys that a window understands.
const (
	keyNoLocks            = "no_locks"
	keyOrdering           = "accumulate_ordering"
	keyOps                = "accumulate_ops"
	keyGranularity        = "mpi_accumulate_granularity"
	keySameSize           = "same_size"
	keySameDispUnit       = "same_disp_unit"
	keyNoncontig          = "alloc_shared_noncontig"
	keyMinAlignment       = "mpi_minimum_memory_alignment"
	keyAssertMemoryKinds  = "mpi_assert_memory_alloc_kinds"
	keyCheck              = "xdprma_check_conflicts" // the library's own
	opsSame, opsSameNoOp  = "same_op", "same_op_no_op"
	orderingNone          = "none"
	minimumAlignmentLimit = 1 << 30
)

// Ordering is the set of accumulates from one origin to one target that apply in
// the order issued (section 11.7.2).
type Ordering uint8

// The orderings; the first letter is the later access.
const (
	OrderRAR Ordering = 1 << iota // read after read
	OrderRAW                      // read after write
	OrderWAR                      // write after read
	OrderWAW                      // write after write

	OrderNone Ordering = 0
	OrderAll           = OrderRAR | OrderRAW | OrderWAR | OrderWAW
)

var orderNames = [...]string{"rar", "raw", "war", "waw"}

// String returns the ordering as the info key accumulate_ordering takes it.
func (o Ordering) String() string {
	if o == OrderNone {
		return orderingNone
	}
	var names []string
	for i, name := range orderNames {
		if o>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Hints are the parsed info keys of a window. They are also assertions: the
// application keeps what it sets.
type Hints struct {
	Settled
	Ordering    Ordering // which accumulates keep their order; all by default
	Ordered     bool     // all operations keep their order, whatever Ordering says
	SameOp      bool     // concurrent accumulates to an address all use one operator, not even NoOp beside it
	MemoryKinds string   // comma-separated kinds of memory used with the window; empty if not given
}

// Settled are the hints that the creation of a window settles for good.
type Settled struct {
	NoLocks              bool   // no passive target synchronisation
	SameSize             bool   // all ranks expose the same size
	SameDispUnit         bool   // all ranks have the same displacement unit
	AllocSharedNoncontig bool   // the shared memory of ranks need not be contiguous: of a window, if all have set it
	MinAlignment         int    // bytes that allocated memory is aligned to, a power of two; 0 if not given
	Check                bool   // look for conflicting accesses
	InClear              bool   // the XDP program is to reach the memory although frames are encrypted otherwise
	Express              int    // bytes up to which memory is to be where the XDP program reaches it: 0: as Limits say; negative: never
	Counters             int    // of notifications, that this rank's window has
	Rules                *Rules // the rights of others to this rank's memory; nil if not given
}

// ParseInfo returns the hints that info sets, and the defaults for the others.
// Unknown keys are ignored, as the standard wants. An error has class Arg and
// names the key: a value that the key does not take.
func ParseInfo(info window.Info) (Hints, error) { return Hints{Ordering: OrderAll}.With(info) }

// With returns h with what info sets, as ParseInfo does; hints that info does
// not mention stay as they are.
func (h Hints) With(info window.Info) (Hints, error) {
	was := h
	for _, key := range h.keys() {
		value, ok := info[key.name]
		if ok && !key.parse(strings.TrimSpace(value)) {
			return was, mpierr.New("window info", mpierr.Arg, mpierr.NoRank, "info key %s does not take the value %q", key.name, value)
		}
	}
	return h, nil
}

// key is an info key, and how its value is taken.
type key struct {
	name  string
	parse func(value string) bool
}

// keys lists the keys of hints, for which they parse values.
func (h *Hints) keys() []key {
	return []key{
		{keyNoLocks, parseBool(&h.NoLocks)},
		{keyOrdering, h.parseOrdering},
		{keyOps, h.parseOps},
		{keyGranularity, parseGranularity},
		{keySameSize, parseBool(&h.SameSize)},
		{keySameDispUnit, parseBool(&h.SameDispUnit)},
		{keyNoncontig, parseBool(&h.AllocSharedNoncontig)},
		{keyMinAlignment, h.parseMinAlignment},
		{keyAssertMemoryKinds, h.parseMemoryKinds},
		{keyCheck, parseBool(&h.Check)},
		{KeyExpress, h.parseExpress},
		{KeyInClear, parseBool(&h.InClear)},
		{KeyAccess, h.parseRules},
		{KeyCounters, h.parseCounters},
		{KeyOrdered, parseBool(&h.Ordered)},
	}
}

// Misspelled returns the keys in info that have no meaning, and are so like one that has that it
// may be meant, with that.
func Misspelled(info window.Info) map[string]string {
	var names []string
	for _, k := range new(Hints).keys() {
		names = append(names, k.name)
	}
	meant := map[string]string{}
	for written := range info {
		if near, like := spelling.Nearest(written, names); like && near != written {
			meant[written] = near
		}
	}
	return meant
}

// Info returns the hints in use, given or by default. Without a default are the alignment, the
// kinds of memory, and KeyExpress, whose value the window itself knows.
func (h Hints) Info() window.Info {
	info := window.Info{
		keyNoLocks: strconv.FormatBool(h.NoLocks), keyOrdering: h.Ordering.String(), keyOps: opsSameNoOp,
		keyGranularity: "0", keySameSize: strconv.FormatBool(h.SameSize),
		keySameDispUnit: strconv.FormatBool(h.SameDispUnit), keyNoncontig: strconv.FormatBool(h.AllocSharedNoncontig),
		keyCheck: strconv.FormatBool(h.Check), KeyOrdered: strconv.FormatBool(h.Ordered),
		KeyInClear: strconv.FormatBool(h.InClear), KeyCounters: strconv.Itoa(h.Counters), KeyAccess: window.MayAll.String(),
	}
	if h.SameOp {
		info[keyOps] = opsSame
	}
	if h.Rules != nil {
		info[KeyAccess] = h.Rules.String()
	}
	if h.MinAlignment != 0 {
		info[keyMinAlignment] = strconv.Itoa(h.MinAlignment)
	}
	if h.MemoryKinds != "" {
		info[keyAssertMemoryKinds] = h.MemoryKinds
	}
	return info
}

func parseBool(to *bool) func(string) bool {
	return func(value string) bool {
		*to = value == "true"
		return *to || value == "false"
	}
}

func (h *Hints) parseOrdering(value string) bool {
	h.Ordering = OrderNone
	if value == orderingNone {
		return true
	}
	for name := range strings.SplitSeq(value, ",") {
		known := false
		for i, n := range orderNames {
			if strings.TrimSpace(name) == n {
				h.Ordering |= 1 << i
				known = true
			}
		}
		if !known {
			return false
		}
	}
	return true
}

func (h *Hints) parseOps(value string) bool {
	h.SameOp = value == opsSame
	return h.SameOp || value == opsSameNoOp
}

// parseGranularity looks whether the value is one. Nothing is made of it: an
// element is what accumulates update as one, and Info says 0, the library's choice.
func parseGranularity(value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && n >= 0
}

func (h *Hints) parseMinAlignment(value string) bool {
	n, err := strconv.Atoi(value)
	h.MinAlignment = n
	return err == nil && n > 0 && n <= minimumAlignmentLimit && bits.OnesCount(uint(n)) == 1
}

func (h *Hints) parseExpress(value string) bool {
	switch value {
	case "true":
		h.Express = math.MaxInt
		return true
	case "false":
		h.Express = -1
		return true
	}
	n, err := strconv.Atoi(value)
	h.Express = n
	return err == nil && n > 0
}

func (h *Hints) parseCounters(value string) bool {
	n, err := strconv.Atoi(value)
	h.Counters = n
	return err == nil && n >= 0 && n <= MaxCounters
}

func (h *Hints) parseRules(value string) (ok bool) {
	h.Rules, ok = ParseRules(value)
	return ok
}

func (h *Hints) parseMemoryKinds(value string) bool {
	var kinds []string
	for kind := range strings.SplitSeq(value, ",") {
		if kind = strings.TrimSpace(kind); kind == "" {
			return false
		}
		kinds = append(kinds, kind)
	}
	h.MemoryKinds = strings.Join(kinds, ",")
	return true
}
