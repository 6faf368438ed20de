// Package tart is a fake of the program `tart`, for machines that are no Mac: the node agent's Tart back end is built and
// tested on it, and so are demonstrations. It is an executable in its own right (test/kit/faketart, and `bullpen dev
// tart`).
//
// It reproduces what is publicly known of Tart's commands, files, answers and defects; comments name the fact as "Tart 4.2"
// and so on:
//
//	4.1  exit codes          0, 1, 2 and 64, and the guest's own by `exec`; 0 by `run` even when the guest crashed
//	4.2  commands            what each does, which locks it takes, which JSON it prints
//	4.3  messages            the texts, of which Messages has each
//	4.4  hosts               two slots, ghost slots, VMs that `list` does not know
//
// None of this has been compared with a Mac by the project: where nothing is known the fake does what is likely, and the comment says
// "likely".
//
// # What a VM is here
//
// A tree of processes of this machine, with this user's rights: NOT isolated. `run` stands for the virtual machine; its child, the guest,
// is the ancestor of every process "in the VM", and kills them all on request, or when `run` has exited. Processes get an environment of
// their own, a home directory that is deleted with the VM, and the shared directories of --dir at $BULLPEN_GUEST_SHARES. Arguments of
// `exec` that begin with /Volumes/My Shared Files are changed accordingly. In the guest, `shutdown` ends the VM. A guest's writes to its
// disk are not kept.
//
// # How to use it
//
// TART_HOME must be set, so that it never touches a real Tart's VMs. A file faketart.json in it sets durations and failures, see Script;
// Write makes one. Calls returns the received commands, for tests. Called as `launchctl` (or with the subcommand launchctl) it is a fake of
// that: `print gui/UID` and `kickstart`.
//
// Begin with Main.
package tart
