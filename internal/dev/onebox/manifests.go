package onebox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox/poolcheck"
)

// fieldManager is the name under which manifests are applied. Pools have it as a label, which tells pools of an earlier run from those of the
// user.
const (
	fieldManager   = poolchange.UpManager
	labelManagedBy = "app.kubernetes.io/managed-by"
)

var poolKind = schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: v1alpha1.KindRunnerPool}

// decodeAll reads the documents of a YAML file.
func decodeAll(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// LoadPools reads RunnerPools from a file, or the default pool when path is empty. runners, when positive, is the number
// of runners of the default pool.
func LoadPools(path string, runners int) ([]*unstructured.Unstructured, error) {
	if path == "" {
		pools, err := decodePools("the default pool", examples.Pool())
		if err == nil && runners > 0 {
			err = unstructured.SetNestedField(pools[0].Object, int64(runners), "spec", "replicas")
		}
		return pools, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading --pool-file: %w", err)
	}
	pools, err := decodePools("--pool-file "+path, content)
	if err != nil {
		return nil, err
	}
	return pools, checkPools("--pool-file "+path, pools)
}

// checkPools refuses pools that the API server would refuse, before one is started.
func checkPools(source string, pools []*unstructured.Unstructured) error {
	for _, pool := range pools {
		problems, err := poolcheck.Check(context.Background(), pool)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if len(problems) > 0 {
			return fmt.Errorf("%s: invalid RunnerPool %s: %s", source, pool.GetName(), strings.Join(problems, "; "))
		}
	}
	return nil
}

// MacPool is the pool for the macOS stand-in.
func MacPool() ([]*unstructured.Unstructured, error) {
	return decodePools("the default macOS pool", examples.MacPool())
}

func decodePools(source string, content []byte) ([]*unstructured.Unstructured, error) {
	pools, err := decodeAll(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not YAML: %w", source, err)
	}
	if len(pools) == 0 {
		return nil, fmt.Errorf("%s has no RunnerPool. See examples/pool.yaml for one", source)
	}
	for n, pool := range pools {
		if pool.GroupVersionKind() != poolKind {
			return nil, fmt.Errorf("%s: document %d is no RunnerPool: kind is %q and apiVersion %q, want RunnerPool and %s. A workflow file is for --workflow",
				source, n+1, pool.GetKind(), pool.GetAPIVersion(), v1alpha1.GroupVersion)
		}
		if pool.GetName() == "" {
			return nil, fmt.Errorf("%s: document %d: metadata.name is required", source, n+1)
		}
		if ns := pool.GetNamespace(); ns != "" && ns != RunnerNamespace {
			return nil, fmt.Errorf("%s: pool %s is in namespace %s; it must be %s", source, pool.GetName(), ns, RunnerNamespace)
		}
		pool.SetNamespace(RunnerNamespace)
		labels := pool.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelManagedBy] = fieldManager
		pool.SetLabels(labels)
	}
	return pools, nil
}

// labelsOf are the labels of a pool, which route jobs to it.
func labelsOf(pool *unstructured.Unstructured) []string {
	labels, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "labels")
	return labels
}

// labelOf is the first of them, which belongs to this pool alone.
func labelOf(pool *unstructured.Unstructured) string {
	labels := labelsOf(pool)
	if len(labels) == 0 {
		return ""
	}
	return labels[0]
}

// applier applies objects as an administrator.
type applier struct{ client client.Client }

func newApplier(admin *rest.Config) (*applier, error) {
	made, err := client.New(admin, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return &applier{client: made}, nil
}

// Install applies what the chart installs beside the workloads (definitions, roles, admission policies), as an
// administrator, and waits until its kinds are served.
func Install(ctx context.Context, admin *rest.Config) error {
	a, err := newApplier(admin)
	if err != nil {
		return err
	}
	return a.install(ctx, false)
}

// install applies the CustomResourceDefinitions that the chart installs, waits until their kinds are served, and applies its roles and
// admission policies; with jobContainers also what containers of jobs need.
func (a *applier) install(ctx context.Context, jobContainers bool) error {
	system := &unstructured.Unstructured{} // `helm install --create-namespace` makes it, too
	system.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	system.SetName(SystemNamespace)
	if err := a.apply(ctx, system); err != nil {
		return err
	}
	definitions, err := a.applyFiles(ctx, charts.CRDs)
	if err != nil {
		return err
	}
	// As Helm does it: the API server keeps for half a minute which kinds there are, and it asks when it meets the first policy with a parameter.
	// A kind that it missed then cannot own anything until it asks again.
	if err := a.awaitKinds(ctx, definedKinds(definitions)); err != nil {
		return err
	}
	if _, err = a.applyFiles(ctx, charts.Rendered); err != nil || !jobContainers {
		return err
	}
	_, err = a.applyFiles(ctx, charts.RenderedJobContainers)
	return err
}

// applyFiles applies what is in the files, and returns it.
func (a *applier) applyFiles(ctx context.Context, load func() ([]charts.File, error)) ([]*unstructured.Unstructured, error) {
	files, err := load()
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, file := range files {
		objects, err := decodeAll(file.Content)
		if err != nil {
			return nil, fmt.Errorf("reading the manifest %s: %w", file.Name, err)
		}
		for _, object := range objects {
			if err := a.apply(ctx, object); err != nil {
				return nil, err
			}
		}
		all = append(all, objects...)
	}
	return all, nil
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	sent := object.DeepCopy() // the answer is written into it, and what was answered cannot be applied again
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), client.FieldOwner(fieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// awaitKinds waits until the API server serves every kind of ours: a controller that starts earlier fails at the first it misses.
func (a *applier) awaitKinds(ctx context.Context, kinds []schema.GroupVersionKind) error {
	for _, kind := range kinds {
		if err := a.awaitKind(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) awaitKind(ctx context.Context, kind schema.GroupVersionKind) error {
	tick := time.NewTicker(50 * time.Millisecond) // a definition's establishment is seen by asking for the kind
	defer tick.Stop()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for {
		err := a.client.List(ctx, list, client.InNamespace(RunnerNamespace), client.Limit(1))
		if err == nil {
			return nil
		}
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("waiting for the kind %s: %w", kind.Kind, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the kind %s: %w", kind.Kind, err)
		case <-tick.C:
		}
	}
}

// definedKinds are those that some definitions define.
func definedKinds(objects []*unstructured.Unstructured) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
		kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: v1alpha1.GroupVersion.Version, Kind: kind})
	}
	return kinds
}

func poolList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(poolKind.GroupVersion().WithKind(poolKind.Kind + "List"))
	return list
}

// applyPools applies the pools, and deletes those that an earlier `bullpen up` in this directory applied and this one does
// not: two pools that serve one label would leave its jobs waiting (CLAIM-12). note gets a sentence for each pool whose size stays as another
// client has set it.
func (a *applier) applyPools(ctx context.Context, pools []*unstructured.Unstructured, note func(string)) error {
	wanted := map[string]bool{}
	for _, pool := range pools {
		wanted[pool.GetName()] = true
		applied, kept, err := a.withSize(ctx, pool)
		if err != nil {
			return err
		}
		if kept != "" {
			note(kept)
		}
		err = a.apply(ctx, applied)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && apierrors.IsInvalid(err) {
			return fmt.Errorf("invalid RunnerPool %s: %s", pool.GetName(), reasons(status))
		}
		if err != nil {
			return err
		}
	}
	existing := poolList()
	if err := a.client.List(ctx, existing, client.InNamespace(RunnerNamespace), client.MatchingLabels{labelManagedBy: fieldManager}); err != nil {
		return fmt.Errorf("listing the pools: %w", err)
	}
	for i := range existing.Items {
		if old := &existing.Items[i]; !wanted[old.GetName()] {
			if err := client.IgnoreNotFound(a.client.Delete(ctx, old)); err != nil {
				return fmt.Errorf("deleting the pool %s of an earlier run: %w", old.GetName(), err)
			}
		}
	}
	return nil
}

// reasons are the API server's own sentences about an object.
func reasons(status apierrors.APIStatus) string {
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return status.Status().Message
	}
	text := ""
	for i, cause := range details.Causes {
		if i > 0 {
			text += "; "
		}
		text += cause.Field + ": " + cause.Message
	}
	return text
}
