// Package chart computes the geometry of small SVG charts: lines, areas, bars and labels, as numbers and path data for a template.
//
// Begin with Plot.Draw.
package chart
