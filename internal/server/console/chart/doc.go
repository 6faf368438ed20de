// Package chart computes small SVG charts: where lines, areas, bars and labels are. What it returns are numbers and path data, which a
// template writes out. It knows nothing of runners. Begin with Plot.Draw.
package chart
