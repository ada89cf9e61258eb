package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/xdprma/xdprma/cmd/internal/perf"
)

// print writes the table for people.
func (c *comparison) print(out io.Writer, mtu int) error {
	heads := []string{fmt.Sprintf("MTU %d", mtu), "bytes", "unit", own}
	for _, p := range peers {
		heads = append(heads, p.title)
	}
	for _, p := range peers {
		heads = append(heads, "× "+p.title)
	}
	rows := [][]string{heads}
	for _, t := range tests {
		cells := []string{t.about, perf.Count(t.bytes), units[t.kind], c.cell(own, t)}
		for _, p := range peers {
			cells = append(cells, c.cell(p.id, t))
		}
		for _, p := range peers {
			cells = append(cells, perf.Figure(c.times(p.id, t)))
		}
		rows = append(rows, cells)
	}
	if err := perf.WriteTable(out, rows); err != nil {
		return err
	}
	return c.notes(out)
}

// notes says how to read the table, and what is missing in it.
func (c *comparison) notes(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "medians of %d rounds; ×: how many times as fast as it %s is, the median of the rounds' ratios\n", len(c.rounds), own)
	if len(c.floors) > 0 {
		fmt.Fprintf(&b, "bare AF_XDP echo of 8 bytes, by round: %.3g to %.3g µs\n", slices.Min(c.floors), slices.Max(c.floors))
	}
	for _, f := range c.failures {
		fmt.Fprintln(&b, "failed:", f)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// cell is a library's figure, or that it has none.
func (c *comparison) cell(library string, t test) string {
	if text := perf.Figure(c.medians(library, t).value(t.kind)); text != "" {
		return text
	}
	return "failed"
}

// line is a test's figures for programs. Times says how many times as fast as a
// library xdprma is. A test that a library failed is absent.
type line struct {
	Test      string              `json:"test"`
	Bytes     int                 `json:"bytes,omitempty"`
	Window    int                 `json:"window,omitempty"`
	Ranks     int                 `json:"ranks"`
	MTU       int                 `json:"mtu"`
	Libraries map[string]*figures `json:"libraries"`
	Times     map[string]float64  `json:"times"`
}

// json writes an object a test, one a line.
func (c *comparison) json(out io.Writer, mtu int) error {
	e := json.NewEncoder(out)
	for _, t := range tests {
		l := line{Test: t.name, Bytes: t.bytes, Window: t.window, Ranks: t.ranks, MTU: mtu,
			Libraries: map[string]*figures{}, Times: map[string]float64{}}
		if f := c.medians(own, t); f.Rounds > 0 {
			l.Libraries[own] = &f
		}
		for _, p := range peers {
			if f := c.medians(p.id, t); f.Rounds > 0 {
				l.Libraries[p.id] = &f
			}
			if times := c.times(p.id, t); times > 0 {
				l.Times[p.id] = times
			}
		}
		if err := e.Encode(l); err != nil {
			return err
		}
	}
	return nil
}
