// Package plot draws pictures as SVG, by hand: a frame with a title, texts and grid lines, in colors that follow the reader's preference for
// light or dark. The load generator and the growth test draw their lines and bars into it.
//
// Begin with New.
package plot
