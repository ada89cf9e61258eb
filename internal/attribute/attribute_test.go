package attribute

import (
	"errors"
	"fmt"
	"testing"
)

var errCallback = errors.New("the callback fails")

// TestCallbacksFollowTheLifeOfAnAttribute goes through the life of two attributes and writes down what is called.
func TestCallbacksFollowTheLifeOfAnAttribute(t *testing.T) {
	var s Set
	var log string
	fail := false
	key := func(name string) *Key {
		return &Key{Delete: func(holder, value any) error {
			log += fmt.Sprintf("%v: delete %s %v; ", holder, name, value)
			if fail {
				return errCallback
			}
			return nil
		}}
	}
	a, b, plain := key("a"), key("b"), &Key{}
	step := func(what string, err error, want string, failed bool) {
		t.Helper()
		if log != want || (err != nil) != failed || failed && !errors.Is(err, errCallback) {
			t.Errorf("%s: %v, called %q, want %q", what, err, log, want)
		}
		log = ""
	}
	holds := func(k *Key, want any) {
		t.Helper()
		if got, ok := s.Get(k); got != want || ok != (want != nil) {
			t.Errorf("holds %v, want %v", got, want)
		}
	}
	step("delete nothing", s.Delete("h", a), "", false)
	step("set", s.Set("h", a, 1), "", false)
	step("set again", s.Set("h", a, 2), "h: delete a 1; ", false)
	step("set others", errors.Join(s.Set("h", b, 3), s.Set("h", plain, 4)), "", false)
	fail = true
	step("a refused delete", s.Delete("h", a), "h: delete a 2; ", true)
	step("a refused set", s.Set("h", a, 9), "h: delete a 2; ", true)
	holds(a, 2)
	fail = false
	step("delete", s.Delete("h", a), "h: delete a 2; ", false)
	holds(a, nil)
	holds(b, 3)
	holds(plain, 4)
	step("set once more", s.Set("h", a, 5), "", false)
	fail = true
	step("clear", s.Clear("h"), "h: delete a 5; h: delete b 3; ", true)
	holds(b, nil)
	step("clear again", s.Clear("h"), "", false)
}

func TestCopyAsksEachKeyAndUndoesOnFailure(t *testing.T) {
	var from, to Set
	var log string
	fail := false
	key := func(name string) *Key {
		return &Key{
			Copy: func(holder, value any) (any, bool, error) {
				log += fmt.Sprintf("%v: copy %s %v; ", holder, name, value)
				if fail && name == "b" {
					return nil, false, errCallback
				}
				return value.(int) * 10, value != 3, nil
			},
			Delete: func(holder, value any) error {
				log += fmt.Sprintf("%v: delete %s %v; ", holder, name, value)
				return nil
			},
		}
	}
	a, b, c, plain := key("a"), key("b"), key("c"), &Key{}
	if err := errors.Join(from.Set("h", a, 1), from.Set("h", plain, 9), from.Set("h", b, 2), from.Set("h", c, 3)); err != nil {
		t.Fatal(err)
	}
	fail = true
	if err := from.CopyTo("h", "d", &to); !errors.Is(err, errCallback) {
		t.Errorf("got %v, want the callback's error", err)
	}
	if want := "h: copy a 1; h: copy b 2; d: delete a 10; "; log != want {
		t.Errorf("called %q, want %q", log, want)
	}
	log, fail = "", false
	if err := from.CopyTo("h", "d", &to); err != nil {
		t.Error(err)
	}
	if want := "h: copy a 1; h: copy b 2; h: copy c 3; "; log != want {
		t.Errorf("called %q, want %q", log, want)
	}
	for k, want := range map[*Key]any{a: 10, b: 20, c: nil, plain: nil} {
		if got, _ := to.Get(k); got != want {
			t.Errorf("copied %v, want %v", got, want)
		}
	}
	if got, _ := from.Get(a); got != 1 {
		t.Errorf("the original became %v", got)
	}
}

// TestCallbackMayUseTheAttributesOfItsObject lets a callback read and delete attributes of its object.
func TestCallbackMayUseTheAttributesOfItsObject(t *testing.T) {
	var s Set
	other := &Key{}
	k := &Key{Delete: func(any, any) error {
		if v, _ := s.Get(other); v != 7 {
			t.Errorf("the callback reads %v", v)
		}
		return s.Delete(nil, other)
	}}
	if err := errors.Join(s.Set(nil, other, 7), s.Set(nil, k, 1), s.Clear(nil)); err != nil {
		t.Error(err)
	}
	if _, ok := s.Get(other); ok {
		t.Error("the other attribute is still there")
	}
}
