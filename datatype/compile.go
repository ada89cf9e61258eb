package datatype

// compile makes what an Iter walks of a layout.
func compile(l layout) *compiled {
	p := &compiled{elements: l.ref, bytes: l.ref, extent: l.extent(), size: l.size()}
	if l.node != nil {
		if l.node.basic == 0 {
			p.bytes = l.place(new(plainer).plain(l.node))
		}
		p.sig = signatureOf(l.node)
	}
	return p
}

func (r ref) place(inner ref) ref { return ref{r.off + inner.off, inner.node} }

// plainer takes data for bytes. It knows what it has done before: a layout may share parts.
type plainer struct {
	runs  runCache
	known map[*node]ref // of loops and lists
}

// plain returns n with all its data taken for bytes, so that more of it joins.
// The result reaches no further and is nested no deeper than n, which is why no
// step can fail.
func (p *plainer) plain(n *node) ref {
	if n.basic == BasicByte {
		return ref{node: n}
	}
	if r, ok := p.known[n]; ok {
		return r
	}
	var r ref
	var err error
	switch n.kind {
	case kindRun:
		r, err = p.runs.run(BasicByte, n.length, n.count, n.stride)
	case kindLoop:
		r, err = newLoop(p.plain(n.body), n.count, n.stride)
	case kindList:
		parts := make([]ref, len(n.items))
		for i, it := range n.items {
			parts[i] = ref{off: it.disp}.place(p.plain(it.node))
		}
		r, err = newList(parts)
	}
	if err != nil {
		panic("datatype: a layout cannot be taken for bytes: " + err.Error())
	}
	if n.kind != kindRun {
		if p.known == nil {
			p.known = map[*node]ref{}
		}
		p.known[n] = r
	}
	return r
}
