package datatype

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/mpierr"
)

// MaxEncoded is the most bytes that Encode makes and Decode takes. Irregular
// blocks take two to six bytes each, so that it is enough for some ten thousand.
const MaxEncoded = 64 << 10

// The form of a type on the wire. Numbers are variable-length as in
// encoding/binary, zigzag where they can be negative.
//
//	version 1 (a byte)
//	flags (a byte): 1 if there are bounds, 2 if there is data
//	lower bound, extent: if there are bounds
//	displacement of the data, node: if there is data
//
// A node is one of
//
//	1 run:  basic datatype (a byte), elements in a block, blocks - 1, and the
//	        stride if there are more blocks
//	2 loop: copies - 2, stride, node
//	3 list: items - 2, the first node, and for each other item how far it is from
//	        the one before, and its node or
//	4 same: the node of the item before
//
// A layout that has a simpler form is sent in that form, so that equal layouts have
// equal encodings: a run's stride is not the length of its blocks, for instance.
// Decode refuses a list of 8 items or fewer as an item of a list, because that
// stands for its own items, and a repeated one would multiply them.
// Decode builds what it reads in the way that constructors do, and a type so
// built has the simplest form whatever was sent.
const (
	wireVersion = 1
	wireBounds  = 1
	wireData    = 2

	wireRun  = 1
	wireLoop = 2
	wireList = 3
	wireSame = 4
)

// Encode returns what Decode makes a type of the same layout from. Names and the
// way of construction are not part of it. Types with the same layout that were
// made in the same way have the same encoding. Its error has class ErrType if t is
// nil or not committed, and ErrSize if the encoding would exceed MaxEncoded.
func Encode(t *Type) ([]byte, error) {
	const op = "encode"
	if !t.Committed() {
		return nil, fail(op, mpierr.Type, "%s is not committed", t)
	}
	b := []byte{wireVersion, 0}
	l := t.layout
	if l.marked {
		b[1] |= wireBounds
		b = binary.AppendVarint(b, l.lb)
		b = binary.AppendVarint(b, l.extent())
	}
	if l.node != nil {
		b[1] |= wireData
		b = binary.AppendVarint(b, l.off)
		b = appendNode(b, l.node)
	}
	if len(b) > MaxEncoded {
		return nil, fail(op, mpierr.Size, "%s takes more than %d bytes", t, MaxEncoded)
	}
	return b, nil
}

// appendNode appends n, or stops anywhere once b is too long.
func appendNode(b []byte, n *node) []byte {
	switch n.kind {
	case kindRun:
		b = append(b, wireRun, byte(n.basic))
		b = binary.AppendUvarint(b, uint64(n.length)/uint64(n.basic.Size()))
		b = binary.AppendUvarint(b, uint64(n.count-1))
		if n.count > 1 {
			b = binary.AppendVarint(b, n.stride)
		}
	case kindLoop:
		b = append(b, wireLoop)
		b = binary.AppendUvarint(b, uint64(n.count-2))
		b = binary.AppendVarint(b, n.stride)
		b = appendNode(b, n.body)
	case kindList:
		b = append(b, wireList)
		b = binary.AppendUvarint(b, uint64(len(n.items)-2))
		for i, it := range n.items {
			if len(b) > MaxEncoded {
				return b
			}
			if i > 0 {
				b = binary.AppendVarint(b, it.disp-n.items[i-1].disp)
				if it.node.equal(n.items[i-1].node) {
					b = append(b, wireSame)
					continue
				}
			}
			b = appendNode(b, it.node)
		}
	}
	return b
}
