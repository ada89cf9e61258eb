// Package spelling finds the name that somebody may have meant.
package spelling

// Nearest returns the name among names that takes the fewest changes to become what somebody
// has written, and whether these are so few that it may be meant: one in five letters.
func Nearest(written string, names []string) (name string, like bool) {
	best := -1
	for _, n := range names {
		if d := distance(written, n); best < 0 || d < best {
			name, best = n, d
		}
	}
	return name, best >= 0 && best <= max(1, len(name)/5)
}

// distance returns how many letters of a have to be changed, added, left out or exchanged with
// the next one to make b of it.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
