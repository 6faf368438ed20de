// Package logtail cuts the end out of a log: the lines that explain why a process died.
package logtail
