package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "bullpen.dev", Version: "v1alpha1"}

	// SchemeBuilder registers the kinds with a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource names a resource of this group, for errors and for dynamic clients.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &RunnerPool{}, &RunnerPoolList{}, &MacHost{}, &MacHostList{},
		&Runner{}, &RunnerList{}, &RunnerReplicaSet{}, &RunnerReplicaSetList{},
		&RunnerDeployment{}, &RunnerDeploymentList{}, &RunnerSet{}, &RunnerSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
