package realnode

import (
	"net/netip"
	"slices"
	"strings"
)

// NodeImage is an image that a node has.
type NodeImage struct {
	// Name is what a pod names: repository and tag.
	Name string
	// Digest is of its manifest, or of its index, if it has several platforms.
	Digest string
	// Size and Platforms are for people: "1.4 MiB", "linux/amd64".
	Size, Platforms string
}

// imageRecord is a name that the container runtime has for an image.
type imageRecord struct {
	NodeImage
	loaded bool // it has labelLoaded
}

// labelLoaded marks names by digest that Import has made.
const labelLoaded = "bullpen.dev/loaded"

// parseImages reads what `ctr images list` prints: a line of titles, and a line for each image with its name, type, digest, size with its unit,
// platforms and labels. Names that are only a digest are left out.
func parseImages(table string) []imageRecord {
	var images []imageRecord
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[0] == "REF" || strings.HasPrefix(fields[0], "sha256:") {
			continue
		}
		images = append(images, imageRecord{
			NodeImage{Name: fields[0], Digest: fields[2], Size: fields[3] + " " + fields[4], Platforms: fields[5]},
			len(fields) > 6 && slices.Contains(strings.Split(fields[6], ","), labelLoaded+"=true"),
		})
	}
	return images
}

// tagged are the images by the names that pods have for them. Those by digest are left out.
func tagged(records []imageRecord) []NodeImage {
	var images []NodeImage
	for _, record := range records {
		if !strings.Contains(record.Name, "@") {
			images = append(images, record.NodeImage)
		}
	}
	return images
}

// byDigest is the name of an image by its digest, as a pull gives it one.
func (i NodeImage) byDigest() string {
	repository := i.Name
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository = repository[:colon]
	}
	return repository + "@" + i.Digest
}

// digestNames are the images that have no name by digest, and such names that Import has made of images whose tag is another image's now.
func digestNames(records []imageRecord) (missing []NodeImage, stale []string) {
	there, wanted := map[string]bool{}, map[string]bool{}
	for _, record := range records {
		there[record.Name] = true
	}
	for _, image := range tagged(records) {
		name := image.byDigest()
		if !there[name] && !wanted[name] {
			missing = append(missing, image)
		}
		wanted[name] = true
	}
	for _, record := range records {
		if record.loaded && !wanted[record.Name] {
			stale = append(stale, record.Name)
		}
	}
	return missing, stale
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
