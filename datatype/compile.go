package datatype

// compile makes the program of a layout.
func compile(l layout) *program {
	p := &program{elements: l.ref, bytes: l.ref, extent: l.extent(), size: l.size()}
	if l.node != nil {
		if l.node.basic == 0 {
			p.bytes = l.place(plain(l.node, map[*node]ref{}))
		}
		p.sig = signatureOf(l.node)
	}
	return p
}

func (r ref) place(inner ref) ref { return ref{r.off + inner.off, inner.node} }

// plain returns n with all its data taken for bytes, so that more of it joins.
// The result reaches no further and is nested no deeper than n, which is why no
// step can fail. known has the nodes done before: a layout may share parts.
func plain(n *node, known map[*node]ref) ref {
	if n.basic == BasicByte {
		return ref{node: n}
	}
	if r, ok := known[n]; ok {
		return r
	}
	var r ref
	var err error
	switch n.kind {
	case kindRun:
		r = ref{node: newRun(BasicByte, n.length)}
		if n.count > 1 {
			r, err = newLoop(r, n.count, n.stride)
		}
	case kindLoop:
		r, err = newLoop(plain(n.body, known), n.count, n.stride)
	case kindList:
		parts := make([]ref, len(n.items))
		for i, it := range n.items {
			parts[i] = ref{off: it.disp}.place(plain(it.node, known))
		}
		r, err = newList(parts)
	}
	if err != nil {
		panic("datatype: a layout cannot be taken for bytes: " + err.Error())
	}
	known[n] = r
	return r
}
