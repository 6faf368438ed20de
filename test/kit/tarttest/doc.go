// Package tarttest builds the fake of Tart for tests that call it.
//
// Begin with Main.
package tarttest
