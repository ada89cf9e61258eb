package archtest

import (
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"testing"
)

// takesEngine matches what a call is made of that takes the engine's lock.
var takesEngine = regexp.MustCompile(`^(.*[pP]oller(\(\))?\.Lock|p\.Lock|w\.turn|c\.enter)$`)

// givesBack matches what is deferred to give the lock back after a panic, or to end the process.
var givesBack = regexp.MustCompile(`([pP]oller(\(\))?|^p)\.(Guard|UnlockQuiet)$`)

// unlocksEngine matches what is not to be deferred.
var unlocksEngine = regexp.MustCompile(`([pP]oller(\(\))?|^p)\.Unlock$`)

// underGuard lists functions that take the engine's lock for those that call them, which defer its Guard.
var underGuard = []string{"rma.turn", "rma.act", "comm.enter"}

// guarded checks that in the calls of programs, which may recover from a panic, who takes the engine's lock defers
// the Guard of the poller, or, if it only reads, gives the lock back in any case.
func guarded(f *file) (faults []string) {
	if f.test || !slices.Contains([]string{"rma", "comm"}, f.dir()) && f.name != "internal/launch/job/carry.go" {
		return nil
	}
	for _, d := range f.ast.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || slices.Contains(underGuard, f.dir()+"."+d.Name.Name) {
			continue
		}
		takes, defers, unlocks := false, false, false
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				takes = takes || takesEngine.MatchString(types.ExprString(n.Fun))
			case *ast.DeferStmt:
				call := types.ExprString(n.Call.Fun)
				defers = defers || givesBack.MatchString(call)
				unlocks = unlocks || unlocksEngine.MatchString(call)
			}
			return true
		})
		if takes && !defers {
			faults = append(faults, fmt.Sprintf("%v: %s takes the engine's lock: defer its Guard, so that a panic ends the rank",
				f.fset.Position(d.Pos()), d.Name.Name))
		}
		if unlocks {
			faults = append(faults, fmt.Sprintf("%v: %s defers the engine's Unlock, which after a panic would send what a broken engine has",
				f.fset.Position(d.Pos()), d.Name.Name))
		}
	}
	return faults
}

// ticked checks that callers have the poller's Tick, which first takes back what the device is done with, and not the
// engine's: the engine does not send again what it believes the device to have.
func ticked(f *file) (faults []string) {
	if f.test || !under(f.dir(), []string{"rma", "comm", "internal/launch/job"}) {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && types.ExprString(c.Fun) == "e.Tick" {
			faults = append(faults, fmt.Sprintf("%v: have the poller tick, not the engine", f.fset.Position(c.Pos())))
		}
		return true
	})
	return faults
}

func TestUnguardedLocksAreFound(t *testing.T) {
	for body, faults := range map[string]int{
		"e := w.poller.Lock(); e.Bye(); w.poller.Unlock()":                          1,
		"t := w.turn(); defer w.poller.Unlock(); t.Bye()":                           2,
		"defer w.poller.Guard(); t := w.turn(); defer w.poller.Unlock(); t.Bye()":   1,
		"defer w.poller.Guard(); e := w.poller.Lock(); e.Bye(); w.poller.Unlock()":  0,
		"w.job.Poller().Lock(); defer w.job.Poller().UnlockQuiet(); return w.freed": 0,
		"w.mu.Lock(); defer w.mu.Unlock()":                                          0,
		"f := func() { e := j.Poller().Lock(); e.Bye(); j.Poller().Unlock() }; f()": 1,
		"defer w.poller.Guard(); e := w.poller.Lock(); e.Tick(); w.poller.Unlock()": 1,
	} {
		f, err := parse("rma/x.go", []byte("package rma\nfunc (w *Win) f() {"+body+"}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := append(guarded(f), ticked(f)...); len(got) != faults {
			t.Errorf("%s: %q, want %d", body, got, faults)
		}
	}
}
