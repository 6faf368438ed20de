//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"howett.net/plist"
)

// domainFile is where the preferences of a domain lie: at a path, with or without .plist, or in the user's own directory,
// there perhaps for this host alone.
func (c *call) domainFile(domain string, currentHost bool) (string, error) {
	if strings.HasPrefix(domain, "/") {
		if !strings.HasSuffix(domain, ".plist") {
			domain += ".plist"
		}
		return c.root.Path(domain), nil
	}
	switch domain {
	case "-g", "-globalDomain", "NSGlobalDomain", "Apple Global Domain":
		domain = ".GlobalPreferences"
	}
	dir := "/Users/" + c.user + "/Library/Preferences"
	if c.user == "root" {
		dir = "/var/root/Library/Preferences"
	}
	if currentHost {
		var h host
		if err := c.root.read(hostFile, &h); err != nil {
			return "", err
		}
		return c.root.Path(filepath.Join(dir, "ByHost", domain+"."+h.UUID+".plist")), nil
	}
	return c.root.Path(filepath.Join(dir, domain+".plist")), nil
}

// runDefaults reads and writes preferences as cfprefsd keeps them, in binary property lists.
func runDefaults(_ context.Context, c *call) error {
	args, currentHost := c.Args, false
	if len(args) > 0 && args[0] == "-currentHost" {
		args, currentHost = args[1:], true
	}
	if len(args) < 2 {
		return failed(255, "Command line interface to a user's defaults.\nSyntax: 'defaults' [-currentHost | -host <hostname>] followed by one of ...") // likely
	}
	verb, domain, rest := args[0], args[1], args[2:]
	file, err := c.domainFile(domain, currentHost)
	if err != nil {
		return err
	}
	lock, err := c.root.lock("defaults")
	if err != nil {
		return err
	}
	defer lock.Close()
	values, err := readPlist(file)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		// A file that cannot be read counts as empty, and a write replaces it.
		values = map[string]any{}
	}
	switch verb {
	case "read", "read-type":
		return c.readDefault(verb, domain, rest, values, missing)
	case "write":
		return c.writeDefault(file, rest, values)
	case "delete":
		if missing {
			return c.complain("\nDomain (%s) not found.\nDefaults have not been changed.\n", domain)
		}
		if len(rest) == 0 {
			return os.Remove(file)
		}
		if _, has := values[rest[0]]; !has {
			return c.complain("\nDomain (%s) not found.\nDefaults have not been changed.\n", domain)
		}
		delete(values, rest[0])
		return c.savePlist(file, values)
	}
	return failed(255, "defaults: the model does not know %q", verb)
}

// complain prefixes what defaults says to stderr as NSLog does.
func (c *call) complain(format string, args ...any) error {
	return failed(1, "%s defaults[%d:1] "+format, append([]any{time.Now().Format("2006-01-02 15:04:05.000"), os.Getpid()}, args...)...)
}

func (c *call) readDefault(verb, domain string, rest []string, values map[string]any, missing bool) error {
	if len(rest) == 0 {
		if missing {
			return c.complain("\nDomain %s does not exist\n", domain)
		}
		return c.print(values)
	}
	value, has := values[rest[0]]
	if !has {
		return c.complain("\nThe domain/default pair of (%s, %s) does not exist\n", domain, rest[0])
	}
	if verb == "read-type" {
		fmt.Fprintf(c.Stdout, "Type is %s\n", typeName(value))
		return nil
	}
	return c.print(value)
}

func typeName(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case uint64, int64, int:
		return "integer"
	case float64:
		return "float"
	case map[string]any:
		return "dictionary"
	case []any:
		return "array"
	case []byte:
		return "data"
	}
	return "unknown"
}

// print is a value as `defaults read` has it: a plain one bare, others in the old property list format.
func (c *call) print(value any) error {
	switch v := value.(type) {
	case string:
		fmt.Fprintln(c.Stdout, v)
	case bool:
		if v {
			fmt.Fprintln(c.Stdout, 1)
		} else {
			fmt.Fprintln(c.Stdout, 0)
		}
	case uint64, int64, int, float64:
		fmt.Fprintln(c.Stdout, v)
	default:
		text, err := plist.MarshalIndent(v, plist.OpenStepFormat, "    ")
		if err != nil {
			return err
		}
		fmt.Fprintln(c.Stdout, strings.TrimRight(string(text), "\n"))
	}
	return nil
}

func (c *call) writeDefault(file string, rest []string, values map[string]any) error {
	if logical := c.root.Logical(file); c.user != "root" && !strings.HasPrefix(logical, "/Users/"+c.user+"/") {
		return c.complain("\nCould not write domain %s; exiting\n", strings.TrimSuffix(logical, ".plist"))
	}
	if len(rest) < 2 {
		return failed(255, "defaults: write needs a key and a value")
	}
	if values == nil {
		values = map[string]any{}
	}
	key := rest[0]
	value, err := parseValue(rest[1:], values[key])
	if err != nil {
		return err
	}
	values[key] = value
	return c.savePlist(file, values)
}

// parseValue reads the words behind the key: a type and a value, or a value that is a string, or pairs for -dict.
func parseValue(words []string, old any) (any, error) {
	if len(words) == 1 {
		return words[0], nil
	}
	kind, words := words[0], words[1:]
	switch kind {
	case "-dict", "-dict-add":
		dict := map[string]any{}
		if before, ok := old.(map[string]any); ok && kind == "-dict-add" {
			dict = before
		}
		for len(words) > 0 {
			key := words[0]
			words = words[1:]
			n := 1
			if len(words) > 1 && strings.HasPrefix(words[0], "-") {
				n = 2
			}
			if len(words) < n {
				return nil, failed(255, "Key %s lacks a value", key)
			}
			value, err := parseValue(words[:n], nil)
			if err != nil {
				return nil, err
			}
			dict[key], words = value, words[n:]
		}
		return dict, nil
	case "-array", "-array-add":
		var array []any
		if before, ok := old.([]any); ok && kind == "-array-add" {
			array = before
		}
		for _, w := range words {
			array = append(array, w)
		}
		return array, nil
	}
	if len(words) != 1 {
		return nil, failed(255, "Unexpected argument %s; leaving defaults unchanged.", words[1])
	}
	return parseScalar(kind, words[0])
}

func parseScalar(kind, word string) (any, error) {
	switch kind {
	case "-string":
		return word, nil
	case "-int", "-integer":
		n, err := strconv.ParseInt(word, 0, 64)
		if err != nil {
			n = 0 // as -[NSString intValue] has it
		}
		return n, nil
	case "-float":
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			f = 0
		}
		return f, nil
	case "-bool", "-boolean":
		switch strings.ToLower(word) {
		case "true", "yes", "1":
			return true, nil
		case "false", "no", "0":
			return false, nil
		}
	}
	return nil, failed(255, "Unexpected argument %s; leaving defaults unchanged.", word)
}

func readPlist(file string) (map[string]any, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if _, err := plist.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return values, nil
}

func (c *call) savePlist(file string, values map[string]any) error {
	data, err := plist.Marshal(values, plist.BinaryFormat)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if c.user == "root" {
		mode = 0o644
	}
	if err := c.root.replace(file, data, mode); err != nil {
		return err
	}
	if u, known := c.config.user(c.user); known && os.Getuid() == 0 && u.UID != 0 {
		return os.Lchown(file, u.UID, 20)
	}
	return nil
}

// runPlutil checks, converts and reads property lists.
func runPlutil(_ context.Context, c *call) error {
	if len(c.Args) == 0 {
		return failed(1, "No files specified.")
	}
	verb, rest := c.Args[0], c.Args[1:]
	if !strings.HasPrefix(verb, "-") {
		verb, rest = "-lint", c.Args
	}
	if verb == "-extract" && len(rest) >= 3 {
		return c.extract(rest)
	}
	format, to := plist.XMLFormat, ""
	if verb == "-convert" && len(rest) > 0 {
		switch rest[0] {
		case "binary1":
			format = plist.BinaryFormat
		case "xml1":
		default:
			return failed(1, "Unknown format specifier: %s", rest[0])
		}
		rest = rest[1:]
		if len(rest) > 1 && rest[0] == "-o" {
			to, rest = rest[1], rest[2:]
		}
	}
	for _, name := range rest {
		if strings.HasPrefix(name, "-") && name != "-" {
			continue
		}
		values, err := readPlist(c.root.Path(name))
		if err != nil {
			fmt.Fprintf(c.Stdout, "%s: (%v)\n", name, err)
			return exitCode(1)
		}
		switch verb {
		case "-lint":
			fmt.Fprintf(c.Stdout, "%s: OK\n", name)
		case "-p":
			return c.print(values)
		case "-convert":
			data, err := plist.MarshalIndent(values, format, "\t")
			if err != nil {
				return err
			}
			if to == "-" {
				_, err = c.Stdout.Write(data)
				return err
			}
			if to == "" {
				to = name
			}
			if err := c.root.replace(c.root.Path(to), data, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// extract is `plutil -extract KEYPATH FORMAT … FILE`.
func (c *call) extract(rest []string) error {
	values, err := readPlist(c.root.Path(rest[len(rest)-1]))
	if err != nil {
		return failed(1, "%s: file does not exist or is not readable or is not a regular file", rest[len(rest)-1])
	}
	var value any = values
	for _, key := range strings.Split(rest[0], ".") {
		dict, _ := value.(map[string]any)
		next, has := dict[key]
		if !has {
			return failed(1, "%s: Could not extract value, error: No value at that key path or invalid key path: %s", rest[len(rest)-1], rest[0])
		}
		value = next
	}
	if rest[1] == "raw" {
		if b, ok := value.(bool); ok {
			fmt.Fprintln(c.Stdout, b)
			return nil
		}
		return c.print(value)
	}
	data, err := plist.MarshalIndent(value, plist.XMLFormat, "\t")
	if err == nil {
		_, err = c.Stdout.Write(data)
	}
	return err
}
