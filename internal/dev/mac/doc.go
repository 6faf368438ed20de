// Package mac is a model of a Mac, for machines that are none: what prepares a Mac (bullpen host) is built and tested on
// it. It is a directory, the root, with the files that macOS ships and with the commands that it has: one executable
// (test/kit/fakemac, and `bullpen dev mac`) that lies there under the name of each.
//
// What is modelled, from which fact, and what is not known is in docs/internals/model-mac.md. None of it has been compared
// with a Mac by the project: where the facts are silent the model does what is likely, and the comment says "likely".
//
// # How it works
//
// A command finds its root from where its executable lies, so that arguments are those of a real Mac: `ROOT/sbin/pfctl -f
// /etc/pf.conf` reads ROOT/etc/pf.conf. Everything runs with the rights of the user of this machine; who the user is "on
// the Mac" says the environment variable DEVMAC_USER, and commands that need root refuse others. NOT isolated, and no
// safety of any kind.
//
// Boot starts `launchd`, a process that really starts what /Library/LaunchDaemons says, and models the login window. The
// packet filter's rules are package pf's: parsed, kept, printed and evaluated, but no packet of this machine is touched.
// Only connections to the model's SSH server are judged by them (see Front).
//
// # How tests use it
//
// Package mactest boots a Mac in one line. A [Script] makes commands fail, hang, answer otherwise or die; [Calls] tells
// which were called. Begin with Main.
package mac
