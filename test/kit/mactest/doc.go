// Package mactest boots model Macs for tests, and ends them with the test.
//
//	mac := devmactest.Boot(t)
//	ssh := mac.SSH(t)
//
// It imports the standard library, the model and testify only. Begin with Boot.
package mactest
