// Package controller reconciles the kinds of bullpen.dev: one directory per kind, each in the shape observe, plan, fence, act. This package
// wires them into one leader-elected process.
//
// Only this tree deletes runner pods, in one function (removal.Remover.Remove, EXCL-2). What it needs from the
// server comes over HTTP, in serverclient. Begin with controller.go.
package controller
