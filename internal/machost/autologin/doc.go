// Package autologin encodes and decodes /etc/kcpassword, from which macOS's loginwindow reads the password of the user that it logs in
// automatically at boot.
//
// macOS does not report a wrong password: loginwindow rewrites the file with the encoded text "<sealed>", and from then on no session is
// opened and no virtual machine starts. So a writer of the file decodes it again once loginwindow has read it (HOST-3).
//
// It has no input or output. The format is public knowledge (see Encode); it was not verified on a Mac here. Begin with Encode in
// kcpassword.go.
package autologin
