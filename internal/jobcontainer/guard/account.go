package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// account is a user as Docker finds it in an image.
type account struct {
	uid, gid uint32
	groups   []uint32 // supplementary
	home     string
}

// maxID is the largest user or group number that Docker takes.
const maxID = 1<<31 - 1

// findAccount resolves USER of an image, or --user, in the contents of /etc/passwd and /etc/group, as Docker does: user, uid, user:group,
// uid:gid and mixtures. Numbers need no entry; names do. Supplementary groups are those that list the user, unless a group is given.
//
// https://github.com/moby/sys/blob/main/user/user.go (GetExecUser) has the same rules.
func findAccount(spec string, passwd, group []byte) (account, error) {
	userPart, groupPart, _ := strings.Cut(spec, ":")
	a := account{home: "/"}
	name, err := a.findUser(userPart, passwd)
	if err != nil {
		return account{}, err
	}
	return a, a.findGroups(name, groupPart, group)
}

// findUser sets user, group and home, and returns the name; empty if the user has none.
func (a *account) findUser(user string, passwd []byte) (string, error) {
	number, numeric := parseID(user)
	if user == "" {
		number, numeric = 0, true
	}
	for fields := range entries(passwd, 7) {
		uid, ok := parseID(fields[2])
		gid, okToo := parseID(fields[3])
		if ok && okToo && (user != "" && fields[0] == user || numeric && uid == number) {
			a.uid, a.gid = uid, gid
			if fields[5] != "" {
				a.home = fields[5]
			}
			return fields[0], nil
		}
	}
	if !numeric {
		return "", fmt.Errorf("user %q is not in the image's /etc/passwd", user)
	}
	a.uid = number
	return "", nil
}

func (a *account) findGroups(user, group string, file []byte) error {
	number, numeric := parseID(group)
	for fields := range entries(file, 4) {
		gid, ok := parseID(fields[2])
		switch {
		case !ok:
		case group == "":
			if user != "" && slices.Contains(strings.Split(fields[3], ","), user) {
				a.groups = append(a.groups, gid)
			}
		case fields[0] == group || numeric && gid == number:
			a.gid = gid
			return nil
		}
	}
	if group == "" {
		return nil
	}
	if !numeric {
		return fmt.Errorf("group %q is not in the image's /etc/group", group)
	}
	a.gid = number
	return nil
}

func parseID(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n <= maxID
}

// entries yields the fields of the lines that have at least n of them, separated by colons.
func entries(content []byte, n int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, len(content)+1)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if fields := strings.Split(line, ":"); len(fields) >= n && !yield(fields) {
				return
			}
		}
	}
}

// userNames are the names of /etc/passwd that a person could have given, the first most of them.
func userNames(passwd []byte, most int) []string {
	var names []string
	for fields := range entries(passwd, 7) {
		if len(names) == most {
			break
		}
		if isWord(fields[0]) {
			names = append(names, fields[0])
		}
	}
	return names
}

// isWord says whether a value of the image is short and printable: others are left out.
func isWord(text string) bool {
	return text != "" && len(text) <= 64 && strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// maxLike bounds ID_LIKE.
const maxLike = 16

// osRelease reads ID and ID_LIKE of /etc/os-release (man 5 os-release).
func osRelease(content []byte) (id string, like []string) {
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content)+1)
	for lines.Scan() {
		name, value, found := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !found {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		switch name {
		case "ID":
			if isWord(value) {
				id = value
			}
		case "ID_LIKE":
			like = strings.Fields(value)
			like = slices.DeleteFunc(like[:min(len(like), maxLike)], func(name string) bool { return !isWord(name) })
		}
	}
	return id, like
}
