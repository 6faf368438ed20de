package assets

import (
	"fmt"
	"net/url"
	"strings"
)

// Off is the value of EnvAssets that leaves only what is compiled from the devcluster sources.
const Off = "off"

// setting is what EnvAssets says. The zero value is that of an unset variable.
type setting struct {
	dir    string
	mirror *url.URL
	off    bool
}

// parseSetting tells a mirror's URL and "off" from a directory; a directory of that name can be written as ./off.
func parseSetting(value string) (setting, error) {
	switch {
	case value == Off:
		return setting{off: true}, nil
	case !strings.HasPrefix(value, "http://") && !strings.HasPrefix(value, "https://"):
		return setting{dir: value}, nil
	}
	mirror, err := url.Parse(value)
	if err != nil {
		return setting{}, fmt.Errorf("$%s is not a valid URL: %w", EnvAssets, err)
	}
	if mirror.Host == "" || mirror.RawQuery != "" || mirror.Fragment != "" {
		return setting{}, fmt.Errorf("$%s is not a valid URL of a mirror: expected https://HOST/PATH, got %s", EnvAssets, mirror.Redacted())
	}
	return setting{mirror: mirror}, nil
}
