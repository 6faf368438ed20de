// Package logtail cuts the end out of a log: what somebody wants to read of a process that has died.
package logtail
