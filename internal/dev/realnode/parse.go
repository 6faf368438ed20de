package realnode

import (
	"net/netip"
	"strings"
)

// NodeImage is an image that a node has.
type NodeImage struct {
	// Name is what a pod names: repository and tag.
	Name string
	// Size and Platforms are for people: "1.4 MiB", "linux/amd64".
	Size, Platforms string
}

// parseImages reads what `ctr images list` prints: a line of titles, and a line for each image with its name, type, digest, size with its unit,
// and platforms.
func parseImages(table string) []NodeImage {
	var images []NodeImage
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[0] == "REF" || strings.HasPrefix(fields[0], "sha256:") || strings.Contains(fields[0], "@") {
			continue
		}
		images = append(images, NodeImage{Name: fields[0], Size: fields[3] + " " + fields[4], Platforms: fields[5]})
	}
	return images
}

// parseResolvers are the addresses of a resolv.conf's name servers.
func parseResolvers(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if _, err := netip.ParseAddr(fields[1]); err == nil {
			all = append(all, fields[1])
		}
	}
	return all
}
