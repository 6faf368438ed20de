// Package results is what `make bench` writes, and the tables of pages that are made of it. It must measure nothing itself: that is
// test/bench. Begin with Run.
package results
