package autologin

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// key is the one that every macOS uses: the file is hidden from a glance, not encrypted. Its mode, 0600 of root, protects it.
var key = [...]byte{0x7D, 0x89, 0x52, 0x23, 0xD2, 0xBC, 0xDD, 0xEA, 0xA3, 0xB9, 0x1F}

// sealed is what loginwindow writes in place of a password that it could not log in with.
const sealed = "<sealed>"

// ErrSealed reports that loginwindow has tried the password, failed, and given automatic login up for good.
var ErrSealed = errors.New("loginwindow has sealed /etc/kcpassword: the password is not that of the user, and automatic login is off " +
	"until the file is written again with the right one")

// PasswordError says why a password cannot be written. It does not repeat the password.
type PasswordError struct{ Problem string }

// Error is the sentence for a person.
func (e *PasswordError) Error() string { return "the password for automatic login " + e.Problem }

// Encode makes the content of the file: the password and at least one NUL, filled with NULs to a multiple of the key's 11 bytes
// and then combined with the key by exclusive or. An 11-byte password takes 22 bytes.
// The error is a *PasswordError: the text is no possible password, or would decode to another.
func Encode(password string) ([]byte, error) {
	switch {
	case password == "":
		return nil, &PasswordError{"is empty"}
	case strings.ContainsRune(password, 0):
		return nil, &PasswordError{"holds a NUL byte, at which macOS would end it"}
	case !utf8.ValidString(password):
		return nil, &PasswordError{"is not valid UTF-8"}
	case strings.ContainsAny(password, "\n\r"):
		return nil, &PasswordError{"holds the end of a line: was a file read with its last line end?"}
	case strings.HasPrefix(password, sealed):
		return nil, &PasswordError{fmt.Sprintf("begins with %s, which is how macOS marks a password that failed", sealed)}
	}
	content := make([]byte, (len(password)/len(key)+1)*len(key))
	copy(content, password)
	combine(content)
	return content, nil
}

// Decode returns the password in the file's content, or ErrSealed. Other errors say that the content is not of that format.
func Decode(content []byte) (string, error) {
	if len(content) == 0 {
		return "", errors.New("/etc/kcpassword is empty")
	}
	text := bytes.Clone(content)
	combine(text)
	if bytes.HasPrefix(text, []byte(sealed)) {
		return "", ErrSealed
	}
	password, _, ended := bytes.Cut(text, []byte{0})
	if !ended || len(password) == 0 {
		return "", errors.New("/etc/kcpassword holds no password in the format that loginwindow reads")
	}
	return string(password), nil
}

func combine(content []byte) {
	for i := range content {
		content[i] ^= key[i%len(key)]
	}
}
