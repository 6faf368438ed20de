package chartjobs

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// fieldManager owns what the Jobs apply.
const fieldManager = "bullpen-chart"

// ApplyCRDs applies the definitions (one YAML document each), and returns when the API server serves all of them. It prints each change to
// out. Applying existing definitions changes nothing.
func ApplyCRDs(ctx context.Context, cluster dynamic.Interface, documents [][]byte, out io.Writer) error {
	for _, document := range documents {
		wanted := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &wanted.Object); err != nil {
			return fmt.Errorf("reading a definition: %w", err)
		}
		err := granted(ctx, grantTakes, grantEvery, func() error {
			_, err := cluster.Resource(definitions).Apply(ctx, wanted.GetName(), wanted, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
			return err
		})
		if err != nil {
			return fmt.Errorf("applying the definition %s: %w", wanted.GetName(), err)
		}
		if err := awaitEstablished(ctx, cluster, wanted.GetName()); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is up to date\n", wanted.GetName())
	}
	return nil
}

func awaitEstablished(ctx context.Context, cluster dynamic.Interface, name string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var found *unstructured.Unstructured
		err := granted(ctx, grantTakes, grantEvery, func() (err error) {
			found, err = cluster.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the definition %s: %w", name, err)
		}
		if established(found) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s is served: %w", name, ctx.Err())
		}
	}
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, _ := condition.(map[string]any)
		if fields["type"] == "Established" && fields["status"] == "True" {
			return true
		}
	}
	return false
}
