package windows

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

var update = flag.Bool("update", false, "write what the transcripts' commands print into the transcripts")

// transcript plays each file of a directory of testdata. A line that starts with
// "> " is a command; the indented lines after it are what it must print. All
// other lines are prose.
func transcript(t *testing.T, dir string, start func() (run func(words []string) []string)) {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata/%s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			run := start()
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "  ") {
					continue
				}
				out.WriteString(line)
				if command, ok := strings.CutPrefix(line, "> "); ok {
					for _, l := range run(strings.Fields(command)) {
						out.WriteString("  " + l + "\n")
					}
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if out.String() != string(text) {
				t.Errorf("%s should read:\n%s", file, out.String())
			}
		})
	}
}

// TestLockTranscripts: holders are single letters, and each ticket is the
// holder's letter with the number of its request.
func TestLockTranscripts(t *testing.T) {
	transcript(t, "lock", func() func([]string) []string {
		var l Lock[string]
		requests := 0
		grants := func(granted []Grant[string]) (out []string) {
			for _, g := range granted {
				out = append(out, fmt.Sprintf("granted to %c, ticket %s", rune(g.Holder), g.Ticket))
			}
			return out
		}
		return func(words []string) []string {
			if words[0] == "state" {
				how := "free"
				switch {
				case l.exclusive:
					how = "held exclusively"
				case l.Holders() > 0:
					how = fmt.Sprintf("held shared by %d", l.Holders())
				}
				return []string{fmt.Sprintf("%s, %d waiting", how, l.Waiting())}
			}
			holder := uint64(words[1][0])
			switch words[0] {
			case "exclusive", "shared", "other":
				kind := map[string]window.LockType{"exclusive": window.LockExclusive, "shared": window.LockShared, "other": 300}[words[0]]
				requests++
				granted, class := l.Acquire(holder, kind, fmt.Sprint(words[1], requests))
				switch {
				case class != mpierr.Success:
					return []string{"refused: " + class.Error()}
				case granted:
					return []string{"granted at once"}
				}
				return []string{"waits"}
			case "release":
				granted, class := l.Release(holder, nil)
				if class != mpierr.Success {
					return []string{"refused: " + class.Error()}
				}
				return append([]string{"released"}, grants(granted)...)
			case "drop":
				return append([]string{"dropped"}, grants(l.Drop(holder, nil))...)
			}
			return []string{"unknown command"}
		}
	})
}

func TestEpochTranscripts(t *testing.T) {
	asserts := map[string]window.Assert{"nocheck": window.ModeNoCheck, "noput": window.ModeNoPut, "nocheck+noput": window.ModeNoCheck | window.ModeNoPut,
		"nosucceed": window.ModeNoSucceed, "noprecede": window.ModeNoPrecede, "nostore": window.ModeNoStore}
	kinds := map[string]window.LockType{"exclusive": window.LockExclusive, "shared": window.LockShared}
	transcript(t, "epoch", func() func([]string) []string {
		e := NewEpoch(0, 4, false)
		return func(words []string) []string {
			say := func(err error) []string {
				if err == nil {
					return []string{"ok"}
				}
				return []string{err.Error()}
			}
			word := func(i int) string {
				if i < len(words) {
					return words[i]
				}
				return ""
			}
			rank, _ := strconv.Atoi(word(1))
			switch words[0] {
			case "no_locks":
				e = NewEpoch(0, 4, true)
				return say(nil)
			case "lock":
				return say(e.Lock(rank, kinds[word(2)], asserts[word(3)]))
			case "unlock":
				return say(e.Unlock(rank))
			case "lock_all":
				return say(e.LockAll(asserts[word(1)]))
			case "unlock_all":
				return say(e.UnlockAll())
			case "fence":
				return say(e.Fence(asserts[word(1)]))
			case "start", "post":
				var group []int
				for _, r := range strings.Split(word(1), ",") {
					n, _ := strconv.Atoi(r)
					group = append(group, n)
				}
				if words[0] == "start" {
					return say(e.Start(group, asserts[word(2)]))
				}
				return say(e.Post(group, asserts[word(2)]))
			case "complete":
				return say(e.Complete())
			case "wait":
				err := e.CheckWait("wait")
				if err == nil {
					e.Waited()
				}
				return say(err)
			case "access":
				err := e.Access(rank)
				if err == nil {
					e.Used()
				}
				return say(err)
			case "flush":
				return say(e.Flush(rank))
			case "flush_all":
				return say(e.FlushAll())
			case "free":
				return say(e.Free())
			case "how":
				kind, assert, ok := e.Locked(rank)
				return []string{fmt.Sprintf("locked %v, %v, assertion %d", ok, kind, assert)}
			}
			return []string{"unknown command"}
		}
	})
}
