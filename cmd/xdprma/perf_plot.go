package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/xdprma/xdprma/cmd/internal/perf"
)

// plotChart is one diagram with logarithmic axes.
type plotChart struct {
	title  string
	series []plotSeries
}

// plotSeries is a line of a chart.
type plotSeries struct {
	name   string
	values map[int][]float64 // by size
}

// plotFloor is the series of all tests' floors.
const plotFloor = "floor"

// The layout in pixels. The legend is to the right of the plot.
const (
	plotWidth, plotHeight                     = 760, 420
	plotLeft, plotRight, plotTop, plotBottom  = 70, 530, 40, 370
	plotLegend, plotLegendText, plotLegendRow = 550, 576, 18
)

var plotColors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c510a", "#542788"}

// writePerfPlot draws latency and bandwidth against size, with their floors, as SVG. busy is how many
// processes computed meanwhile.
func writePerfPlot(w io.Writer, results []*perf.Result, busy int) error {
	latency, bandwidth := plotChart{title: "latency p50, µs"}, plotChart{title: "bandwidth, MB/s"}
	for _, r := range results {
		t, known := perf.Find(r.Test)
		switch {
		case !known || r.Bytes == 0 || t.Fixed || t.Scale: // nothing to see against size
		case t.Kind == perf.Latency:
			latency.add(r.Test, r.Bytes, r.P50)
			latency.add(plotFloor, r.Bytes, r.FloorP50)
		case t.Kind == perf.Bandwidth:
			bandwidth.add(r.Test, r.Bytes, r.MBPerS)
			bandwidth.add(plotFloor, r.Bytes, r.FloorMBPerS)
		}
	}
	var b strings.Builder
	height := 0
	for _, c := range []plotChart{latency, bandwidth} {
		if len(c.series) > 0 {
			c.title += fmt.Sprintf(" (%s, MTU %d", results[0].Mode, results[0].MTU)
			if busy > 0 {
				c.title += fmt.Sprintf(", --busy %d", busy)
			}
			c.title += ")"
			fmt.Fprintf(&b, `<g transform="translate(0,%d)">`+"\n", height)
			c.draw(&b)
			b.WriteString("</g>\n")
			height += plotHeight
		}
	}
	if height == 0 {
		return fmt.Errorf("--plot: no test with a latency or a bandwidth by size was measured")
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12" stroke-width="2">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, plotWidth, height, b.String())
	return err
}

// add adds a value to the series of a name.
func (c *plotChart) add(name string, bytes int, value float64) {
	if value <= 0 {
		return
	}
	i := slices.IndexFunc(c.series, func(s plotSeries) bool { return s.name == name })
	if i < 0 {
		i = len(c.series)
		c.series = append(c.series, plotSeries{name, map[int][]float64{}})
	}
	c.series[i].values[bytes] = append(c.series[i].values[bytes], value)
}

// plotAxis maps values to pixels by their logarithm, between whole powers of a base, and
// gives at most ten ticks.
func plotAxis(base float64, values []float64, start, end float64) (at func(float64) float64, ticks []float64) {
	const nearly = 1e-9
	log := func(v float64) float64 { return math.Log(v) / math.Log(base) }
	first := math.Floor(log(slices.Min(values)) + nearly)
	last := max(math.Ceil(log(slices.Max(values))-nearly), first+1)
	for p := first; p <= last; p += math.Ceil((last - first) / 10) {
		ticks = append(ticks, math.Pow(base, p))
	}
	return func(v float64) float64 { return start + (log(v)-first)/(last-first)*(end-start) }, ticks
}

// draw draws a grid, and of each series a line through the medians and a row of the legend.
func (c *plotChart) draw(b *strings.Builder) {
	const line = `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`
	const text = `<text x="%.1f" y="%.1f" %s>%s</text>` + "\n"
	var sizes, values []float64
	for _, s := range c.series {
		for size, v := range s.values {
			sizes, values = append(sizes, float64(size)), append(values, v...)
		}
	}
	x, xTicks := plotAxis(2, sizes, plotLeft, plotRight)
	y, yTicks := plotAxis(10, values, plotBottom, plotTop)
	fmt.Fprintf(b, text, float64(plotLeft), plotTop-16.0, `font-size="14"`, c.title)
	fmt.Fprintf(b, text, (plotLeft+plotRight)/2.0, plotHeight-10.0, `text-anchor="middle"`, "bytes")
	const grid = `stroke="#ddd" stroke-width="1"`
	for _, v := range xTicks {
		fmt.Fprintf(b, line, x(v), float64(plotTop), x(v), float64(plotBottom), grid)
		fmt.Fprintf(b, text, x(v), plotBottom+18.0, `text-anchor="middle"`, sizeText(int(v)))
	}
	for _, v := range yTicks {
		fmt.Fprintf(b, line, float64(plotLeft), y(v), float64(plotRight), y(v), grid)
		fmt.Fprintf(b, text, plotLeft-6.0, y(v)+4, `text-anchor="end"`, fmt.Sprintf("%g", v))
	}
	for i, s := range c.series {
		style := fmt.Sprintf(`stroke="%s"`, plotColors[i%len(plotColors)])
		if s.name == plotFloor {
			style = `stroke="#888" stroke-dasharray="6 4"`
		}
		fmt.Fprintf(b, `<polyline fill="none" %s points="`, style)
		for _, size := range slices.Sorted(maps.Keys(s.values)) {
			fmt.Fprintf(b, "%.1f,%.1f ", x(float64(size)), y(perf.Median(s.values[size])))
		}
		b.WriteString(`"/>` + "\n")
		row := float64(plotTop + i*plotLegendRow)
		fmt.Fprintf(b, line, float64(plotLegend), row, plotLegendText-6.0, row, style)
		fmt.Fprintf(b, text, float64(plotLegendText), row+4, "", s.name)
	}
}

// sizeText writes a power of two as --bytes reads it.
func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dM", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}
