// Package tarttest builds the fake of Tart for tests that call it.
//
// It imports the standard library only. Begin with Main.
package tarttest
