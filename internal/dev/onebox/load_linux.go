package onebox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// LoadImages gives the node of a running `bullpen up --containers` the images of a file.
func LoadImages(ctx context.Context, stateDir, path string, out io.Writer) error {
	node, err := runningNode(stateDir)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the images: %w", err)
	}
	defer file.Close()
	images, err := realnode.InspectArchive(file)
	if err != nil {
		return fmt.Errorf("%s: %w. Write it with `docker save IMAGE -o FILE`", path, err)
	}
	if err := checkPlatforms(path, images, "linux/"+runtime.GOARCH); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading the images: %w", err)
	}
	if err := node.Import(ctx, file); err != nil {
		return err
	}
	for _, image := range images {
		for _, name := range image.Names {
			fmt.Fprintf(out, "Loaded %s.\n", name)
		}
	}
	return nil
}

// checkPlatforms refuses images that cannot run here, or that no pod could name.
func checkPlatforms(path string, images []realnode.ArchivedImage, here string) error {
	for _, image := range images {
		name := strings.Join(image.Names, ", ")
		if name == "" {
			return fmt.Errorf("%s has an image without a name, which no pool can name. Save it by its name: `docker save NAME:TAG -o FILE`", path)
		}
		if !slices.Contains(image.Platforms, here) {
			return fmt.Errorf("image %s is for %s, and this machine is %s. Save an image for this machine: `docker pull --platform %s NAME:TAG`, then `docker save`",
				name, strings.Join(image.Platforms, ", "), here, here)
		}
	}
	return nil
}

// ListImages prints the images that the node of a running `bullpen up --containers` has.
func ListImages(ctx context.Context, stateDir string, out io.Writer) error {
	node, err := runningNode(stateDir)
	if err != nil {
		return err
	}
	images, err := node.Images(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tSIZE\tPLATFORM")
	for _, image := range images {
		fmt.Fprintf(table, "%s\t%s\t%s\n", image.Name, image.Size, image.Platforms)
	}
	return table.Flush()
}

// runningNode is the node of a `bullpen up --containers` that another process runs.
func runningNode(stateDir string) (realnode.Runtime, error) {
	layout, err := NewLayout(stateDir)
	if err != nil {
		return realnode.Runtime{}, err
	}
	var where Where
	data, err := os.ReadFile(layout.statusFile())
	if err == nil {
		err = json.Unmarshal(data, &where)
	}
	switch {
	case errors.Is(err, fs.ErrPermission), err == nil && os.Geteuid() != 0:
		return realnode.Runtime{}, errors.New("images belong to a node of root. Run the command as root, or with sudo")
	case errors.Is(err, fs.ErrNotExist), err == nil && !where.Owner.Alive():
		return realnode.Runtime{}, fmt.Errorf("`bullpen up --containers` is not running in %s. Start it first", layout.Dir)
	case err != nil:
		return realnode.Runtime{}, fmt.Errorf("reading the status of `bullpen up`: %w", err)
	case where.NodeInit == 0:
		return realnode.Runtime{}, fmt.Errorf("`bullpen up` in %s runs jobs as processes, and images are ignored. Start it with --containers", layout.Dir)
	}
	return realnode.Runtime{Init: where.NodeInit}, nil
}
