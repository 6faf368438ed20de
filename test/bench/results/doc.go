// Package results is what `make bench` writes, and the tables of pages that are made of it. It measures nothing itself: test/bench
// does. Begin with Run.
package results
