package datatype

import (
	"reflect"

	"github.com/xdprma/xdprma/mpierr"
)

// FromGo returns a committed datatype for variables of the Go type T; see
// FromStruct.
func FromGo[T any]() (*Type, error) { return FromStruct(reflect.TypeFor[T]()) }

// FromStruct returns a committed datatype for variables of the Go type g: a
// struct with fields of fixed size, exported or not, an array, a number, a bool
// or a Pair. Padding and fields named _ are not part of the data. int and uint
// are Int64 and Uint64, and byte is Uint8. Its extent is the variable's size.
//
// Its error has class ErrType if g is nil or has a field of another kind, such as a
// slice or pointer, and then names the field.
func FromStruct(g reflect.Type) (*Type, error) {
	const op = "from go"
	if g == nil {
		return nil, fail(op, mpierr.Type, "no Go type")
	}
	l, err := goLayout(g, g.String())
	if err != nil {
		return nil, err
	}
	t, err := derive(op, describe("go", g), l, nil)
	if err != nil {
		return nil, err
	}
	t.ofGo = true
	return Commit(t, nil)
}

var goPairs = map[reflect.Type]*Type{
	reflect.TypeFor[Pair[float32]](): Float32Int32,
	reflect.TypeFor[Pair[float64]](): Float64Int32,
	reflect.TypeFor[Pair[int64]]():   Int64Int32,
	reflect.TypeFor[Pair[int32]]():   Int32Int32,
	reflect.TypeFor[Pair[int16]]():   Int16Int32,
}

// goLayout returns the layout of a variable of type g; path names it in errors.
func goLayout(g reflect.Type, path string) (layout, error) {
	if t := goPairs[g]; t != nil {
		return t.layout, nil
	}
	var l layout
	var err error
	switch k := g.Kind(); {
	case k == reflect.Struct:
		l, err = goFields(g, path)
	case k == reflect.Array:
		if l, err = goLayout(g.Elem(), path+"[]"); err != nil {
			return l, err
		}
		l, err = l.repeat(int64(g.Len()), int64(g.Elem().Size()))
		err = wrapPath(err, path)
	case int(k) < len(byKind) && byKind[k] != nil:
		return byKind[k].layout, nil
	default:
		return l, fail("from go", mpierr.Type, "%s: no datatype holds a %s", path, k)
	}
	if err == nil && (l.lb != 0 || l.extent() != int64(g.Size())) {
		l, err = l.resize(0, int64(g.Size()))
	}
	return l, err
}

func goFields(g reflect.Type, path string) (layout, error) {
	var parts []layout
	for i := range g.NumField() {
		field := g.Field(i)
		if field.Name == "_" {
			continue
		}
		part, err := goLayout(field.Type, path+"."+field.Name)
		if err != nil {
			return part, err
		}
		part, err = part.shift(int64(field.Offset))
		if err != nil {
			return part, wrapPath(err, path+"."+field.Name)
		}
		parts = append(parts, part)
	}
	l, err := concat(parts)
	return l, wrapPath(err, path)
}

func wrapPath(err error, path string) error {
	if err == nil {
		return nil
	}
	return fail("from go", mpierr.Type, "%s: %w", path, err)
}
