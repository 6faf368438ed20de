// Package await bounds the waits of tests. If the product does not do what a test waits for, the test fails after Limit and
// shows what it waited for and the goroutines of this module; the package's timeout would end all its tests and say neither.
//
// Begin with Receive.
package await
