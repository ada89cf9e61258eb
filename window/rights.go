package window

import "strings"

// Rights are what a window's owner lets another rank do with its memory: a set, combined by
// bitwise or. To be in the window's group is enough for all that no right is named for, such as
// unlock, flush, fence, post, start, complete and wait. The standard has nothing like it.
type Rights uint8

// The rights. A call that reads and changes memory needs several: get_accumulate and
// fetch_and_op MayRead and the right of their operator, compare_and_swap MayRead and MayWrite.
const (
	MayRead       Rights = 1 << iota // get, and get_accumulate with NoOp
	MayWrite                         // put, and accumulate with Replace
	MayAccumulate                    // accumulate with any other operator
	MayLock                          // to lock the window, shared or exclusively

	MayNothing Rights = 0
	MayAll            = MayRead | MayWrite | MayAccumulate | MayLock
)

var rightNames = [...]string{"read", "write", "accumulate", "lock"}

// String returns the rights as the info key xdprma_access takes them: "all", "none", or names
// with a comma between. Of a value that has other bits it returns "invalid".
func (r Rights) String() string {
	switch {
	case r&^MayAll != 0:
		return "invalid"
	case r == MayAll:
		return "all"
	case r == MayNothing:
		return "none"
	}
	var names []string
	for i, name := range rightNames {
		if r>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRights is the inverse of String, with names in any order and spaces between; ok is false
// if text is something else.
func ParseRights(text string) (r Rights, ok bool) {
	switch text = strings.TrimSpace(text); text {
	case MayAll.String():
		return MayAll, true
	case MayNothing.String():
		return MayNothing, true
	}
	for part := range strings.SplitSeq(text, ",") {
		bit := Rights(0)
		for i, name := range rightNames {
			if strings.TrimSpace(part) == name {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return MayNothing, false
		}
		r |= bit
	}
	return r, true
}
