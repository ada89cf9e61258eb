package datatype

// layout is one entry of a type: its bytes, and the bounds that say where the
// next entry starts. It is a value that constructors combine.
type layout struct {
	ref
	marked bool  // lb and ub were set by a resize, and override what the bytes say
	lb, ub int64 // bounds; ub-lb is the extent
}

// natural returns r with the bounds that the standard gives a type map without
// markers (section 5.1): from the first byte to the last, rounded up to the
// largest alignment of an element.
func natural(r ref) layout {
	if r.node == nil {
		return layout{}
	}
	lb, ub := r.bounds()
	align := int64(r.node.align)
	return layout{ref: r, lb: lb, ub: lb + (ub-lb+align-1)/align*align}
}

func (l layout) extent() int64 { return l.ub - l.lb }

// repeat returns count copies of l, stride bytes apart.
func (l layout) repeat(count, stride int64) (layout, error) {
	if count == 0 {
		return layout{}, nil
	}
	r, err := newLoop(l.ref, count, stride)
	if err != nil || !l.marked {
		return natural(r), err
	}
	var c calc
	low, high := c.bounds(count, stride)
	return layout{ref: r, marked: true, lb: c.add(l.lb, low), ub: c.add(l.ub, high)}, c.err()
}

// shift returns l moved by disp bytes.
func (l layout) shift(disp int64) (layout, error) {
	var c calc
	if l.node != nil {
		c.add(c.add(l.off, disp), l.node.lo)
		c.add(c.add(l.off, disp), l.node.hi)
		l.off += disp
	}
	if l.node != nil || l.marked {
		l.lb, l.ub = c.add(l.lb, disp), c.add(l.ub, disp)
	}
	return l, c.err()
}

// concat returns the parts one after the other. Marked bounds, where any part
// has them, override those of the unmarked parts.
func concat(parts []layout) (layout, error) {
	refs := make([]ref, len(parts))
	var bounds layout
	for i, p := range parts {
		refs[i] = p.ref
		switch {
		case !p.marked:
		case !bounds.marked:
			bounds = p
		default:
			bounds.lb, bounds.ub = min(bounds.lb, p.lb), max(bounds.ub, p.ub)
		}
	}
	r, err := newList(refs)
	if err != nil || !bounds.marked {
		return natural(r), err
	}
	bounds.ref = r
	return bounds, nil
}

// resize returns l with the given bounds.
func (l layout) resize(lb, extent int64) (layout, error) {
	var c calc
	return layout{ref: l.ref, marked: true, lb: c.in(lb), ub: c.add(lb, extent)}, c.err()
}
