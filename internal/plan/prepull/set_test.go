package prepull

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// on is a set that wants the images "new" on these nodes.
func on(nodes ...string) *Set {
	s := NewSet()
	for _, node := range nodes {
		s.PutNode(node, "host-"+node)
	}
	s.Want("new")
	return s
}

func TestSet_StateOfANode(t *testing.T) {
	for _, c := range []struct {
		name string
		pods []Pod
		want State
	}{
		{"no pod", nil, Absent},
		{"the pod of the former images", []Pod{{Node: "n", Images: "old", Ready: true}}, Absent},
		{"a pod that has just begun", []Pod{{Node: "n", Images: "new"}}, Pulling},
		{"a pod that cannot pull", []Pod{{Node: "n", Images: "new", Problem: "not found"}}, Failed},
		{"all is there", []Pod{{Node: "n", Images: "new", Ready: true}}, Present},
		{"a pod on its way out proves nothing", []Pod{{Node: "n", Images: "new", Ready: true, Leaving: true}}, Absent},
		{"the pod that replaces it", []Pod{{Node: "n", Images: "old", Ready: true, Leaving: true}, {Node: "n", Images: "new"}}, Pulling},
		{"one of two is enough", []Pod{{Node: "n", Images: "new", Problem: "x"}, {Node: "n", Images: "new", Ready: true}}, Present},
		{"a pod of another node", []Pod{{Node: "m", Images: "new", Ready: true}}, Absent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := on("n")
			for i, pod := range c.pods {
				s.PutPod(fmt.Sprint("pod-", i), pod)
			}
			require.Equal(t, c.want, s.State("n"))
			require.Equal(t, c.want != Present, s.Lacks("n"))
			for i := range c.pods {
				s.DropPod(fmt.Sprint("pod-", i))
			}
			require.Equal(t, Absent, s.State("n"), "without its pods")
		})
	}
}

func TestSet_NothingIsWaitedForWhereNoRunnerCanStart(t *testing.T) {
	s := on("n")
	require.True(t, s.Lacks("n"))
	require.False(t, s.Lacks("other"))
	require.True(t, s.DropNode("n"))
	require.False(t, s.Lacks("n"))
	require.Equal(t, []string{"host-n"}, func() []string {
		s.PutNode("n", "host-n")
		s.PutPod("p", Pod{Node: "n", Images: "new", Ready: true})
		s.PutNode("m", "m")
		return s.Preference().In
	}())
	require.True(t, s.Want(""), "turned off")
	require.False(t, s.Lacks("m"))
	require.Equal(t, Report{}, s.Report())
	require.Equal(t, Preference{}, s.Preference())
}

func TestSet_OtherImagesAreMissingAtOnce(t *testing.T) {
	s := on("n")
	require.Equal(t, []string{"n"}, s.PutPod("p", Pod{Node: "n", Images: "new", Ready: true}))
	require.False(t, s.Lacks("n"))
	require.True(t, s.Want("newer"))
	require.True(t, s.Lacks("n"), "before any pod has changed")
	require.False(t, s.Want("newer"))
}

// Only what a plan or a condition depends on counts as a change.
func TestSet_ReportsChangesThatMatter(t *testing.T) {
	s := on("n")
	require.Empty(t, s.PutPod("p", Pod{Node: "n", Images: "new"}), "it pulls")
	require.Equal(t, []string{"n"}, s.PutPod("p", Pod{Node: "n", Images: "new", Problem: "ErrImagePull"}))
	require.Empty(t, s.PutPod("p", Pod{Node: "n", Images: "new", Problem: "ImagePullBackOff"}), "in other words")
	require.Equal(t, []string{"n"}, s.PutPod("p", Pod{Node: "n", Images: "new", Ready: true}))
	require.Empty(t, s.PutPod("p", Pod{Node: "n", Images: "new", Ready: true}))
	require.Equal(t, []string{"n"}, s.PutPod("p", Pod{Node: "n", Images: "new", Ready: true, Leaving: true}))
	require.Empty(t, s.DropPod("p"))
	require.Empty(t, s.DropPod("unknown"))
	s.PutPod("p", Pod{Node: "n", Images: "new", Ready: true})
	s.PutNode("m", "host-m")
	require.ElementsMatch(t, []string{"n", "m"}, s.PutPod("p", Pod{Node: "m", Images: "new", Ready: true}), "a name that is on another node")
}

func TestSet_ReportNamesTheFirstNodeThatFails(t *testing.T) {
	s := on("a", "b", "c", "d")
	s.PutPod("1", Pod{Node: "a", Images: "new", Ready: true})
	s.PutPod("2", Pod{Node: "c", Images: "new", Problem: "unauthorized"})
	s.PutPod("3", Pod{Node: "b", Images: "new", Problem: "not found"})
	require.Equal(t, Report{Wanted: true, Nodes: 4, Present: 1, Failed: 2, FailedNode: "b", Problem: "not found"}, s.Report())
	require.Equal(t, 3, s.Report().Missing())
	s.DropNode("b")
	require.Equal(t, Report{Wanted: true, Nodes: 3, Present: 1, Failed: 1, FailedNode: "c", Problem: "unauthorized"}, s.Report())
}

func TestSet_Preference(t *testing.T) {
	nodes := func(present, missing int) *Set {
		s := on()
		for i := range present + missing {
			node := fmt.Sprintf("n%03d", i)
			s.PutNode(node, node)
			s.PutPod(node, Pod{Node: node, Images: "new", Ready: i < present})
		}
		return s
	}
	for _, c := range []struct {
		present, missing int
		in, notIn        int
	}{
		{0, 5, 0, 0}, {5, 0, 0, 0}, {1, 4, 1, 0}, {4, 1, 0, 1}, {2, 2, 2, 0}, {500, 3, 0, 3}, {500, 100, MostNames, 0}, {100, 500, MostNames, 0},
	} {
		p := nodes(c.present, c.missing).Preference()
		require.Len(t, p.In, c.in, "%+v", c)
		require.Len(t, p.NotIn, c.notIn, "%+v", c)
	}
	s := nodes(1, 1)
	s.PutNode("n000", "")
	require.Empty(t, s.Preference().In, "a node without a hostname label")
}

// Events in any order give the state that a set would have which saw the last of each alone.
func TestSet_KeepsCountWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		s, hosts, pods, images := NewSet(), map[string]bool{}, map[string]Pod{}, ""
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				s.PutNode(name, name)
				hosts[name] = true
			case 1:
				s.DropNode(name)
				delete(hosts, name)
			case 2:
				pods[name] = Pod{
					Node: rapid.SampledFrom(names).Draw(t, "node"), Images: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "images"),
					Ready: rapid.Bool().Draw(t, "ready"), Leaving: rapid.Bool().Draw(t, "leaving"), Problem: rapid.SampledFrom([]string{"", "p"}).Draw(t, "problem"),
				}
				s.PutPod(name, pods[name])
			case 3:
				s.DropPod(name)
				delete(pods, name)
			default:
				images = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "images")
				s.Want(images)
			}
		}
		fresh := NewSet()
		fresh.Want(images)
		for name := range hosts {
			fresh.PutNode(name, name)
		}
		for name, pod := range pods {
			fresh.PutPod(name, pod)
		}
		require.Equal(t, fresh.Report(), s.Report())
		require.Equal(t, fresh.Preference(), s.Preference())
		require.Equal(t, fresh.Nodes(), s.Nodes())
		for _, name := range names {
			require.Equal(t, fresh.State(name), s.State(name), name)
		}
	})
}
