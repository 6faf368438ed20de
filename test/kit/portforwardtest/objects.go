package portforwardtest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Services are the three of a release, as the chart writes them.
func Services(namespace, release string) []corev1.Service {
	var services []corev1.Service
	for part, port := range map[string]int32{"webhooks": 80, "dispatch": 80, "admin": 8082} {
		services = append(services, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-" + part},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app.kubernetes.io/name": "bullpen", "app.kubernetes.io/instance": release},
				Ports:    []corev1.ServicePort{{Name: "http", Port: port, TargetPort: intstr.FromString(part)}},
			},
		})
	}
	return services
}

// Pod is one of a server, of an age, and ready or not.
func Pod(name string, age time.Duration, isReady corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bullpen-system", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "sidecar", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 1}}},
			{Name: "server", Ports: []corev1.ContainerPort{{Name: "dispatch", ContainerPort: 8081}, {Name: "admin", ContainerPort: 8082}}},
		}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: isReady}}},
	}
}
