// Package tracingtest is an OpenTelemetry collector that keeps what it is sent, for tests.
package tracingtest
