package workflow

import (
	"strings"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v4"
)

// dockerPrefix may stand before the name of an image.
const dockerPrefix = "docker://"

// containerKeys are the keys of `container:`; where is actionlint's name of the place.
func containerKeys(where string) map[string]*shape {
	text := &shape{text: true}
	list := &shape{items: &shape{text: true, nonEmpty: true}}
	return map[string]*shape{
		"image": text, "options": text, "ports": list, "volumes": list,
		"env": {values: &shape{text: true, where: where + ".env.<env_id>"}},
		"credentials": {where: where + ".credentials", keys: map[string]*shape{
			"username": {text: true, nonEmpty: true}, "password": {text: true, nonEmpty: true},
		}},
	}
}

func serviceKeys() map[string]*shape {
	keys := containerKeys("jobs.<job_id>.services.<service_id>")
	keys["entrypoint"], keys["command"] = &shape{text: true}, &shape{text: true}
	return keys
}

var (
	containerShape = &shape{text: true, keys: containerKeys("jobs.<job_id>.container"), where: "jobs.<job_id>.container"}
	servicesShape  = &shape{values: &shape{text: true, keys: serviceKeys()}, where: "jobs.<job_id>.services"}
)

// containers are what a job wants beside its runner, as tokens; nil where the job says nothing.
type containers struct{ job, services *Token }

// containers reads `container` and `services` of each job from the YAML tree. What actionlint says of these places is dropped: GitHub's
// parser allows more in some of them, and less in others.
func (c *checker) containers(src *actionlint.Workflow, doc *yaml.Node) map[string]containers {
	out := map[string]containers{}
	for id, job := range src.Jobs {
		node := child(child(doc, "jobs"), job.ID.Value)
		var found containers
		if n := child(node, "container"); n != nil {
			t, ok := c.shaped(n, keyPosition(node, "container"), containerShape)
			if ok {
				c.image(t, position(n), false)
			}
			found.job = &t
		}
		if n := child(node, "services"); n != nil {
			t, ok := c.shaped(n, keyPosition(node, "services"), servicesShape)
			if ok {
				c.serviceImages(t, n)
			}
			found.services = &t
		}
		out[id] = found
	}
	return out
}

// shaped reads a node that actionlint has read already. ok indicates that it fits the shape.
func (c *checker) shaped(n *yaml.Node, key actionlint.Pos, s *shape) (t Token, ok bool) {
	before := len(c.problems)
	reader := &shapeReader{c: c, seen: map[actionlint.Pos]bool{key: true}}
	t = reader.read(n, s, s.where)
	ok = len(c.problems) == before
	kept := c.problems[:0:0]
	for i, p := range c.problems {
		if i >= before || !p.foreign || !reader.seen[actionlint.Pos{Line: p.Line, Col: p.Column}] {
			kept = append(kept, p)
		}
	}
	c.problems = kept
	return t, ok
}

// keyPosition is the place of a key in a mapping that has it.
func keyPosition(n *yaml.Node, key string) actionlint.Pos {
	n = resolve(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if strings.EqualFold(n.Content[i].Value, key) {
			return *position(n.Content[i])
		}
	}
	return actionlint.Pos{}
}

// image refuses an image that is written out and empty. The job's own container may be empty: the job has none then.
func (c *checker) image(t Token, pos *actionlint.Pos, service bool) {
	if t.dynamic() {
		return
	}
	image := t.Text
	if t.Kind == TokenMapping {
		found, _ := t.Get("image")
		image = found.Text
	}
	rest, prefixed := strings.CutPrefix(image, dockerPrefix)
	if rest == "" && (prefixed || service) {
		c.add(pos, "", noEmptyImage)
	}
}

func (c *checker) serviceImages(t Token, n *yaml.Node) {
	n = resolve(n)
	if t.dynamic() || n.Kind != yaml.MappingNode {
		return
	}
	for _, p := range t.Pairs {
		if value := child(n, p.Key.Text); value != nil {
			c.image(p.Value, position(value), true)
		}
	}
}

// Container is a container of a job, evaluated.
type Container struct {
	// Name is the service's; "" for the container of the job itself.
	Name string
	// Image is without docker://; "" means that there is no container.
	Image string
	// Options are for `docker create`, as one text.
	Options             string
	Entrypoint, Command string // of a service
	Env                 []Pair
	Ports, Volumes      []string
	Username, Password  string
}

// EvalContainer evaluates `container:`. A nil token, and an image that is empty, give nil.
func (s Scope) EvalContainer(t *Token) (*Container, error) {
	if t == nil || t.Kind == TokenNull {
		return nil, nil
	}
	value, err := s.evalShape(*t, containerShape, containerShape.where)
	if err != nil {
		return nil, err
	}
	c := containerOf("", value)
	if c.Image == "" {
		return nil, nil
	}
	return &c, nil
}

// EvalServices evaluates `services:`, in the order of the file. One whose image is empty is among them: it is not started.
func (s Scope) EvalServices(t *Token) ([]Container, error) {
	if t == nil || t.Kind == TokenNull {
		return nil, nil
	}
	value, err := s.evalShape(*t, servicesShape, servicesShape.where)
	if err != nil {
		return nil, err
	}
	var out []Container
	for _, p := range value.Pairs {
		out = append(out, containerOf(p.Key.Text, p.Value))
	}
	return out, nil
}

// containerOf reads a value that has its shape.
func containerOf(name string, t Token) Container {
	c := Container{Name: name, Image: t.Text}
	for _, p := range t.Pairs {
		switch p.Key.Text {
		case "image":
			c.Image = p.Value.Text
		case "options":
			c.Options = p.Value.Text
		case "entrypoint":
			c.Entrypoint = p.Value.Text
		case "command":
			c.Command = p.Value.Text
		case "ports":
			c.Ports = texts(p.Value)
		case "volumes":
			c.Volumes = texts(p.Value)
		case "env":
			for _, v := range p.Value.Pairs {
				c.Env = append(c.Env, Pair{v.Key.Text, v.Value.Text})
			}
		case "credentials":
			for _, v := range p.Value.Pairs {
				if v.Key.Text == "username" {
					c.Username = v.Value.Text
				} else {
					c.Password = v.Value.Text
				}
			}
		}
	}
	c.Image = strings.TrimPrefix(c.Image, dockerPrefix)
	return c
}

func texts(list Token) []string {
	var out []string
	for _, item := range list.Items {
		out = append(out, item.Text)
	}
	return out
}
