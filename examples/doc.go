// Package examples carries the files of this directory, which are meant to be read and copied, for the commands that use
// them: the pools of `bullpen up` and the workflows of `bullpen demo`. Begin with demo.yaml.
package examples
