// Package autologin encodes and decodes /etc/kcpassword, from which macOS's loginwindow takes the password of the user that it logs
// in by itself when the machine starts.
//
// A wrong password is not reported by anybody: loginwindow rewrites the file with the encoded text "<sealed>", and from then on
// no session is ever opened and no virtual machine starts. So whoever writes the file decodes it again once loginwindow has read it
// (HOST-3).
//
// It does no input and no output. The format is public knowledge (see Encode); none of it was tried on a Mac here. Begin with
// Encode in kcpassword.go.
package autologin
