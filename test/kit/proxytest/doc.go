// Package proxytest runs a real forward proxy, tinyproxy, that demands a user name and a password. Without tinyproxy the tests fail with the
// sentence that says how to install it; they are never skipped.
//
// For tests only. Begin with Start.
package proxytest
