package rma_test

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// failing calls every exported method of object that returns an error, with zero
// arguments, and expects told to hear of each error once. It returns how many failed.
func failing(t *testing.T, ctx context.Context, object any, told *[]error, except ...string) (failed int) {
	t.Helper()
	v := reflect.ValueOf(object)
	errorType := reflect.TypeFor[error]()
	for i := range v.NumMethod() {
		name, m := v.Type().Method(i).Name, v.Method(i)
		n := m.Type().NumOut()
		if n == 0 || m.Type().Out(n-1) != errorType || strings.Contains(strings.Join(except, " "), name) {
			continue
		}
		var args []reflect.Value
		for p := range m.Type().NumIn() {
			arg := reflect.Zero(m.Type().In(p))
			if m.Type().In(p) == reflect.TypeFor[context.Context]() {
				arg = reflect.ValueOf(ctx)
			}
			args = append(args, arg)
		}
		if m.Type().IsVariadic() {
			args = args[:len(args)-1]
		}
		*told = nil
		err, _ := m.Call(args)[n-1].Interface().(error)
		switch {
		case err == nil && len(*told) == 0:
		case err != nil && len(*told) == 1 && (*told)[0] == err:
			failed++
		default:
			t.Errorf("%s returned %v, and the handler was told %v", name, err, *told)
		}
	}
	return failed
}

// TestErrhandlers calls everything on windows and communicators that can no longer
// be used: the handler is told of every error, once.
func TestErrhandlers(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	w, c := wins[0], j.nodes[0].World()
	var told, toldOfComm []error
	w.SetErrhandler(rma.Errhandler(func(of *rma.Win, err error) {
		if of != w {
			t.Error("the handler got another window")
		}
		_ = of.Name() // no lock is held
		told = append(told, err)
	}))
	c.SetErrhandler(comm.Errhandler(func(of *comm.Comm, err error) {
		if of != c {
			t.Error("the handler got another communicator")
		}
		_ = of.Errhandler()
		toldOfComm = append(toldOfComm, err)
	}))
	if w.Errhandler()(w, rma.ErrArg); len(told) != 1 {
		t.Error("the handler of the window is another")
	}
	number := rma.NewKeyval(func(*rma.Win, int) error { return errors.New("no") })
	j.must(number.Set(w, 1))
	for what, call := range map[string]func() error{
		"a missing epoch": func() error { return w.Put(buffer.Bytes([]byte{1}), 1, rma.At(0)) },
		"a bad rank":      func() error { return w.Lock(j.ctx, rma.LockShared, 9, 0) },
		"a bad operator":  func() error { return w.Accumulate(buffer.Of([]float64{1}), 1, rma.At(0), rma.BAnd) },
		"two elements": func() error {
			return w.FetchAndOp(buffer.Of([]int64{1}), buffer.Of([]int64{1, 2}), 1, rma.At(0), rma.Sum)
		},
		"no comparison":         func() error { return w.CompareAndSwap(buffer.Buffer{}, buffer.Buffer{}, buffer.Buffer{}, 1, rma.At(0)) },
		"a callback":            func() error { return number.Delete(w) },
		"another callback":      func() error { return number.Set(w, 2) },
		"a refusal of a target": func() error { return refusedLater(j, w) },
	} {
		told = nil
		if err := call(); err == nil || len(told) != 1 || told[0] != err {
			t.Errorf("%s: returned %v, and the handler was told %v", what, err, told)
		}
	}
	told = nil
	for _, err := range j.outcomes(func(n *rma.Node) error {
		return wins[n.Rank()].SetInfo(j.ctx, rma.Info{"no_locks": "perhaps"})
	}) {
		if !errors.Is(err, rma.ErrArg) {
			t.Errorf("set_info: %v", err)
		}
	}
	if len(told) != 1 || len(toldOfComm) != 0 {
		t.Errorf("set_info: the handlers were told %v and %v", told, toldOfComm)
	}
	// Creating a window is the communicator's affair.
	told = nil
	for rank, err := range j.outcomes(func(n *rma.Node) error {
		_, err := rma.Allocate(j.ctx, n.World(), 8, n.Rank(), nil)
		return err
	}) {
		if !errors.Is(err, rma.ErrDisp) {
			t.Errorf("allocate at rank %d: %v", rank, err)
		}
	}
	if len(told) != 0 || len(toldOfComm) != 1 {
		t.Errorf("allocate: the handlers were told %v and %v", told, toldOfComm)
	}
	j.each(func(n *rma.Node) error {
		if err := wins[n.Rank()].Free(j.ctx); n.Rank() == 0 && !errors.Is(err, rma.ErrOther) || n.Rank() == 1 && err != nil {
			return err
		}
		return nil
	})
	if n := failing(t, j.ctx, w, &told, "CallErrhandler"); n < 20 {
		t.Errorf("only %d calls failed on a freed window", n)
	}
	told = nil
	toldOfComm = nil
	ended, cancel := context.WithCancel(j.ctx)
	cancel()
	if err := c.Barrier(ended); err == nil || len(toldOfComm) != 1 || !errors.Is(err, toldOfComm[0]) {
		t.Errorf("barrier: returned %v, and the handler was told %v", err, toldOfComm)
	}
	if n := failing(t, j.ctx, c, &toldOfComm, "CallErrhandler"); n < 3 {
		t.Errorf("only %d calls failed on a broken communicator", n)
	}
	if len(told) != 0 {
		t.Errorf("the window's handler was told %v", told)
	}
}

// refusedLater has an operation refused by the target, and returns what the flush
// says that hears of it.
func refusedLater(j *job, w *rma.Win) error {
	d := j.dynamics()
	d[0].SetErrhandler(func(_ *rma.Win, err error) { w.CallErrhandler(err) })
	j.must(d[0].Lock(j.ctx, rma.LockShared, 1, 0), d[0].Put(buffer.Bytes([]byte{1}), 1, rma.At(64)))
	err := d[0].Flush(j.ctx, 1)
	j.must(d[0].Unlock(j.ctx, 1))
	return err
}

// TestErrorsAreFatal has errors end the process, which Config.Exit prevents.
func TestErrorsAreFatal(t *testing.T) {
	places, stop, err := testjob.Places(1)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var log bytes.Buffer
	var codes []int
	c := testjob.Config(&places[0])
	c.Logger, c.Exit = slog.New(slog.NewTextHandler(&log, nil)), func(code int) { codes = append(codes, code) }
	n, err := rma.Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	w, err := rma.Allocate(t.Context(), n.World(), 8, 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Sync()
	_ = w.Unlock(t.Context(), 0)
	if len(codes) != 0 {
		t.Fatal("an error ended the process before a handler was set")
	}
	w.SetErrhandler(rma.ErrorsAreFatal)
	n.World().SetErrhandler(comm.ErrorsAreFatal)
	if err := errors.Join(w.SetName("halo"), w.Sync()); err != nil || len(codes) != 0 {
		t.Fatalf("%v, exits %v", err, codes)
	}
	_ = w.Unlock(t.Context(), 0)
	_, _ = n.World().BcastBytes(t.Context(), nil, 5)
	if len(codes) != 2 || codes[0] == 0 || codes[1] == 0 {
		t.Errorf("exits %v, want two with another code than 0", codes)
	}
	for _, part := range []string{"unlock (rank 0): wrong synchronisation", "halo", "broadcast (rank 5)"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %q: %s", part, log.String())
		}
	}
	ofWin, ofComm := []rma.Errhandler{rma.ErrorsReturn, nil}, []comm.Errhandler{comm.ErrorsReturn, nil}
	for i := range ofWin {
		w.SetErrhandler(ofWin[i])
		n.World().SetErrhandler(ofComm[i])
		w.CallErrhandler(rma.ErrArg)
		n.World().CallErrhandler(rma.ErrArg)
		if len(codes) != 2 {
			t.Error("no handler ended the process")
		}
	}
	if err := errors.Join(w.Free(t.Context()), n.Close()); err != nil {
		t.Error(err)
	}
}

// TestEveryCallReports reads the source: every exported call that takes a window
// or a communicator tells its handler of each error, and calls no other that does.
func TestEveryCallReports(t *testing.T) {
	for _, dir := range []string{".", "../comm"} {
		var calls []*ast.FuncDecl
		handled := map[string]bool{}
		var all []*ast.FuncDecl
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				all = append(all, fn)
				if onObject(fn) && fn.Name.IsExported() && returnsError(fn) {
					calls = append(calls, fn)
					handled[fn.Name.Name] = true
				}
			}
		}
		handlers := []string{"report"} // and what calls share that starts with a deferred handle
		for _, fn := range all {
			if !fn.Name.IsExported() && onObject(fn) && startsWithHandle(fn) {
				handlers = append(handlers, fn.Name.Name)
			}
		}
		for _, fn := range calls {
			if !reports(fn, handlers) {
				t.Errorf("%s: %s neither starts with a deferred handle nor returns what such a call returns", dir, namesOf(fn)[0])
			}
		}
		for _, fn := range all {
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				on, _ := sel.X.(*ast.Ident)
				if on != nil && (on.Name == "w" || on.Name == "c") && handled[sel.Sel.Name] && onObject(fn) {
					t.Errorf("%s: %s calls %s, which reports too", dir, namesOf(fn)[0], sel.Sel.Name)
				}
				if of, ok := sel.X.(*ast.SelectorExpr); ok && of.Sel.Name == "comm" && len(call.Args) > 0 {
					if arg, ok := call.Args[0].(*ast.Ident); ok && arg.Name == "ctx" {
						t.Errorf("%s: %s calls %s of the communicator instead of one of package inside", dir, namesOf(fn)[0], sel.Sel.Name)
					}
				}
				return true
			})
		}
		if len(calls) < 3 {
			t.Errorf("%s: %d calls found", dir, len(calls))
		}
	}
}

// onObject reports whether fn is a method of a window, a communicator or a key.
func onObject(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return false
	}
	name := namesOf(fn)[0]
	return strings.HasPrefix(name, "Win.") || strings.HasPrefix(name, "WinOf.") || strings.HasPrefix(name, "Comm.") || strings.HasPrefix(name, "Keyval.")
}

func returnsError(fn *ast.FuncDecl) bool {
	if fn.Type.Results == nil {
		return false
	}
	last := fn.Type.Results.List[len(fn.Type.Results.List)-1]
	id, ok := last.Type.(*ast.Ident)
	return ok && id.Name == "error"
}

// startsWithHandle reports whether fn defers handle first.
func startsWithHandle(fn *ast.FuncDecl) bool {
	if len(fn.Body.List) == 0 {
		return false
	}
	d, ok := fn.Body.List[0].(*ast.DeferStmt)
	return ok && invokes(d.Call, "handle")
}

// reports says whether fn defers handle first, or returns only nil and what one of the
// handlers returns.
func reports(fn *ast.FuncDecl, handlers []string) bool {
	if startsWithHandle(fn) {
		return true
	}
	good := true
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			last := n.Results[len(n.Results)-1]
			id, isIdent := last.(*ast.Ident)
			call, isCall := last.(*ast.CallExpr)
			good = good && (isIdent && id.Name == "nil" || isCall && slices.ContainsFunc(handlers, func(h string) bool { return invokes(call, h) }))
		}
		return true
	})
	return good
}

func invokes(c *ast.CallExpr, name string) bool {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == name
}
