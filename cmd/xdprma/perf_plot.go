package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/xdprma/xdprma/internal/lab/perf"
)

// plotSeries is a line of a chart.
type plotSeries struct {
	name   string
	floor  bool // drawn dashed and grey
	points [][2]float64
}

// plotChart is one diagram with logarithmic axes.
type plotChart struct {
	title  string
	series []plotSeries
}

// The layout in pixels.
const (
	plotWidth, plotHeight              = 760, 420
	plotLeft, plotTop, plotBottom      = 70, 40, 50
	plotRight                          = 230 // the legend's
	plotInnerWidth, plotInnerHeight    = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	plotLegendStep, plotLegendSwatch   = 18, 20
	plotTickGap, plotDot, plotFontSize = 6, 3, 12
)

var plotColors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c510a", "#542788"}

// writePerfPlot draws latency and bandwidth against size, with their floors.
func writePerfPlot(w io.Writer, results []*perf.Result) error {
	where := ""
	if len(results) > 0 {
		where = fmt.Sprintf(" (%s, MTU %d)", results[0].Mode, results[0].MTU)
	}
	latency := plotChart{title: "latency p50, µs" + where}
	bandwidth := plotChart{title: "bandwidth, MB/s" + where}
	for _, r := range results {
		t, known := perf.Find(r.Test)
		switch {
		case !known || r.Bytes == 0 || t.Fixed || t.Scale: // nothing to see against size
		case t.Kind == perf.Latency:
			latency.add(r.Test, false, r.Bytes, r.P50)
			latency.add("floor", true, r.Bytes, r.FloorP50)
		case t.Kind == perf.Bandwidth:
			bandwidth.add(r.Test, false, r.Bytes, r.MBPerS)
			bandwidth.add("floor", true, r.Bytes, r.FloorMBPerS)
		}
	}
	var charts []plotChart
	for _, c := range []plotChart{latency, bandwidth} {
		if len(c.series) > 0 {
			charts = append(charts, c)
		}
	}
	if len(charts) == 0 {
		return fmt.Errorf("--plot: no test with a latency or a bandwidth by size was measured")
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="%d">`+"\n",
		plotWidth, plotHeight*len(charts), plotFontSize)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i := range charts {
		fmt.Fprintf(&b, `<g transform="translate(0,%d)">`+"\n", i*plotHeight)
		charts[i].draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// add adds a point to the series of a name. Floors of one size that several
// tests had are averaged over by their median.
func (c *plotChart) add(name string, floor bool, bytes int, y float64) {
	if y <= 0 {
		return
	}
	i := slices.IndexFunc(c.series, func(s plotSeries) bool { return s.name == name })
	if i < 0 {
		c.series = append(c.series, plotSeries{name: name, floor: floor})
		i = len(c.series) - 1
	}
	c.series[i].points = append(c.series[i].points, [2]float64{float64(bytes), y})
}

// tidy orders the points and keeps one of each size: the median.
func (s *plotSeries) tidy() {
	slices.SortFunc(s.points, func(a, b [2]float64) int { return slices.Compare(a[:], b[:]) })
	var kept [][2]float64
	for start := 0; start < len(s.points); {
		end := start
		for end < len(s.points) && s.points[end][0] == s.points[start][0] {
			end++
		}
		kept = append(kept, s.points[(start+end-1)/2])
		start = end
	}
	s.points = kept
}

// plotAxis maps values to pixels by their logarithm to a base.
type plotAxis struct {
	base         float64
	least, most  float64 // powers of the base
	start, scale float64 // pixels; scale is negative where values grow upwards
}

// newPlotAxis covers values, whole powers of the base at both ends.
func newPlotAxis(base float64, values []float64, start, length float64) plotAxis {
	const nearly = 1e-9
	a := plotAxis{base: base, start: start}
	a.least = math.Floor(math.Log(slices.Min(values))/math.Log(base) + nearly)
	a.most = math.Ceil(math.Log(slices.Max(values))/math.Log(base) - nearly)
	a.most = max(a.most, a.least+1)
	a.scale = length / (a.most - a.least)
	return a
}

func (a *plotAxis) at(v float64) float64 {
	return a.start + (math.Log(v)/math.Log(a.base)-a.least)*a.scale
}

func (c *plotChart) draw(b *strings.Builder) {
	var xs, ys []float64
	for i := range c.series {
		c.series[i].tidy()
		for _, p := range c.series[i].points {
			xs, ys = append(xs, p[0]), append(ys, p[1])
		}
	}
	x := newPlotAxis(2, xs, plotLeft, plotInnerWidth)
	y := newPlotAxis(10, ys, plotTop+plotInnerHeight, -plotInnerHeight)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="14">%s</text>`+"\n", plotLeft, plotTop-16, c.title)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">bytes</text>`+"\n", plotLeft+plotInnerWidth/2, plotHeight-10)
	c.drawGrid(b, &x, &y)
	color := 0
	for i, s := range c.series {
		stroke, dash := "#888888", ` stroke-dasharray="6 4"`
		if !s.floor {
			stroke, dash = plotColors[color%len(plotColors)], ""
			color++
		}
		s.draw(b, &x, &y, fmt.Sprintf(`stroke="%s" stroke-width="2" fill="none"%s`, stroke, dash), stroke)
		at := plotTop + i*plotLegendStep
		left := plotWidth - plotRight + 20
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2"%s/>`, left, at, left+plotLegendSwatch, at, stroke, dash)
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", left+plotLegendSwatch+plotTickGap, at+4, s.name)
	}
}

// drawGrid draws a line and a label at each power of the bases, for sizes at
// few enough of them that the labels do not overlap.
func (c *plotChart) drawGrid(b *strings.Builder, x, y *plotAxis) {
	const line = `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/>`
	step := math.Ceil((x.most - x.least) / 10)
	for p := x.least; p <= x.most; p += step {
		at := x.at(math.Pow(2, p))
		fmt.Fprintf(b, line, at, float64(plotTop), at, float64(plotTop+plotInnerHeight))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, plotTop+plotInnerHeight+18, sizeText(int(math.Pow(2, p))))
	}
	for p := y.least; p <= y.most; p++ {
		at := y.at(math.Pow(10, p))
		fmt.Fprintf(b, line, float64(plotLeft), at, float64(plotLeft+plotInnerWidth), at)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", plotLeft-plotTickGap, at+4, math.Pow(10, p))
	}
}

func (s *plotSeries) draw(b *strings.Builder, x, y *plotAxis, style, fill string) {
	var path []string
	for _, p := range s.points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(p[0]), y.at(p[1])))
	}
	fmt.Fprintf(b, `<polyline points="%s" %s/>`+"\n", strings.Join(path, " "), style)
	if s.floor {
		return
	}
	for _, p := range s.points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%d" fill="%s"/>`+"\n", x.at(p[0]), y.at(p[1]), plotDot, fill)
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
