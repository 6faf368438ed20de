package options

import (
	"path"
	"strings"
)

// ParseVolume reads `volumes:` and --volume: TARGET, SOURCE:TARGET or SOURCE:TARGET:MODE. It returns why it can't.
func ParseVolume(text string) (Volume, string) {
	parts := strings.Split(text, ":")
	v := Volume{Text: text}
	switch len(parts) {
	case 1:
		v.Target = parts[0]
	case 2, 3:
		v.Source, v.Target = parts[0], parts[1]
		if v.Source == "" {
			return Volume{}, "the source is empty"
		}
	default:
		return Volume{}, "must be SOURCE:TARGET or SOURCE:TARGET:MODE"
	}
	if len(parts) == 3 {
		for _, mode := range strings.Split(parts[2], ",") {
			switch mode {
			case "ro":
				v.ReadOnly = true
			case "rw", "z", "Z", "cached", "delegated", "consistent", "nocopy", "private", "rprivate":
			default:
				return Volume{}, "mode '" + mode + "' is not known"
			}
		}
	}
	return v.checked()
}

// checked returns the volume if its target is one, or why not.
func (v Volume) checked() (Volume, string) {
	v.Target = path.Clean(v.Target)
	if !path.IsAbs(v.Target) {
		return Volume{}, "the target must be an absolute path"
	}
	if v.Target == "/" {
		return Volume{}, "the target must not be the root directory"
	}
	return v, ""
}

func volume(u used) {
	v, why := ParseVolume(u.value)
	if why != "" {
		u.invalid(why)
		return
	}
	u.options().Volumes = append(u.options().Volumes, v)
}

// tmpfs reads PATH[:OPTIONS]. Nothing can be mounted in a running pod, so it is a directory.
func tmpfs(u used) {
	target, _, _ := strings.Cut(u.value, ":")
	u.directory(target)
}

func (u used) directory(target string) {
	v, why := Volume{Target: target}.checked()
	if why != "" {
		u.invalid(why)
		return
	}
	u.options().Tmpfs = append(u.options().Tmpfs, v.Target)
	u.options().Warnings = append(u.options().Warnings, "Option '"+u.text()+"' makes an ordinary directory: no file system can be mounted on this runner.")
}

// mount reads KEY=VALUE,… as Docker does.
func mount(u used) {
	v := Volume{Text: u.value}
	kind := "volume"
	for _, field := range strings.Split(u.value, ",") {
		key, value, given := strings.Cut(field, "=")
		switch strings.ToLower(key) {
		case "type":
			kind = strings.ToLower(value)
		case "source", "src":
			v.Source = value
		case "target", "destination", "dst":
			v.Target = value
		case "readonly", "ro":
			on, known := boolean(value)
			if given && !known {
				u.invalid("readonly must be true or false")
				return
			}
			v.ReadOnly = on || !given
		case "consistency", "bind-propagation", "volume-nocopy", "tmpfs-size", "tmpfs-mode":
		default:
			u.invalid("'" + key + "' is not known")
			return
		}
	}
	switch kind {
	case "tmpfs":
		u.directory(v.Target)
	case "bind", "volume":
		if kind == "bind" && !path.IsAbs(v.Source) {
			u.invalid("the source must be an absolute path")
			return
		}
		if kind == "volume" && strings.Contains(v.Source, "/") {
			u.invalid("the source must be the name of a volume")
			return
		}
		checked, why := v.checked()
		if why != "" {
			u.invalid(why)
			return
		}
		u.options().Volumes = append(u.options().Volumes, checked)
	default:
		u.refuse("")
	}
}
