package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const top = "../.."

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

func pages(t *testing.T) map[string]string {
	t.Helper()
	all, err := Pages(top)
	require.NoError(t, err)
	require.Greater(t, len(all), 60)
	return all
}

func blocks(t *testing.T) []Block {
	t.Helper()
	var all []Block
	for name, text := range pages(t) {
		if strings.HasPrefix(name, "docs/adr/") { // frozen: what was true then
			continue
		}
		all = append(all, Blocks(name, text)...)
	}
	slices.SortFunc(all, func(a, b Block) int { return strings.Compare(a.At(), b.At()) })
	return all
}

// Each command is run by a test, or checked here or in cmd/bullpen, or marked as not tried, with the reason.
func TestCommands_AreExecutedCheckedOrMarked(t *testing.T) {
	executed := Executed()
	counts := map[string]int{}
	var problems []string
	for _, b := range blocks(t) {
		for _, c := range Commands(b) {
			if c.Unverified != "" {
				counts["unverified"]++
				require.Greater(t, len(c.Unverified), 8, "%s: say why nobody has tried it", c.At())
				continue
			}
			if test, is := executed[c.Shell]; is {
				counts["executed"]++
				requireIn(t, test, c.Shell)
				delete(executed, c.Shell)
				continue
			}
			for _, words := range c.Parts() {
				level := check(t, c, words)
				if level == "" {
					problems = append(problems, c.At()+": "+strings.Join(words, " "))
				}
				counts[level]++
			}
		}
	}
	require.Empty(t, problems, "nothing runs or checks these: have a test do it (levels.go), or say to the reader why not, with %q behind each", Mark+"…")
	require.Empty(t, executed, "no page has these any more: take them out of levels.go")
	for _, level := range []string{"executed", "unverified", "bullpen", "bullpen-migrate", "kubectl", "make", "go"} {
		require.NotZero(t, counts[level], "nothing of this was found: %v", counts)
	}
	t.Log(counts)
}

// requireIn looks for a command in the sources of a test's package.
func requireIn(t *testing.T, test Test, command string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, test.Folder, "*_test.go"))
	require.NoError(t, err)
	var sources strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sources.Write(text)
	}
	require.Contains(t, sources.String(), "func "+test.Name+"(")
	require.Contains(t, sources.String(), command, "%s does not run it any more", test.Name)
}

// check is how a program's words are held to what there is.
func check(t *testing.T, c Command, words []string) string {
	t.Helper()
	if words[0] == "sudo" {
		words = words[1:]
	}
	switch filepath.Base(words[0]) {
	case "bullpen":
		return "bullpen" // TestDocs of cmd/bullpen
	case "bullpen-migrate":
		return "bullpen-migrate" // TestDocs of cmd/bullpen-migrate
	case "kubectl":
		return "kubectl" // TestKubectl
	case "make":
		for _, word := range words[1:] {
			if word != "" && !strings.Contains(word, "=") {
				makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
				require.NoError(t, err)
				require.Regexp(t, "(?m)^"+regexp.QuoteMeta(word)+":", string(makefile), "%s: make has no %s", c.At(), word)
			}
		}
		return "make"
	case "go":
		for _, word := range words[1:] {
			if strings.HasPrefix(word, "./") {
				require.DirExists(t, filepath.Join(top, strings.TrimSuffix(word, "/...")), c.At())
			}
		}
		return "go"
	}
	if words[0] == "curl" && standinPath.MatchString(words[len(words)-1]) {
		found := standinPath.FindStringSubmatch(words[len(words)-1])
		require.Contains(t, routesOfStandin(t), found[1], "%s: the stand-in has no such path", c.At())
		return "curl"
	}
	if slices.Contains(plain, words[0]) {
		return "plain"
	}
	return ""
}

// standinPath is an address of the stand-in for GitHub.
var standinPath = regexp.MustCompile(`^http://127\.0\.0\.1:\w+(/_standin/\w+)$`)

func routesOfStandin(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, "internal/dev/github/standin/*.go"))
	require.NoError(t, err)
	var sources strings.Builder
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, "_test.go") {
			sources.Write(text)
		}
	}
	return sources.String()
}

// variable is one of the shell's, which was set before.
var variable = regexp.MustCompile(`\$\w+`)

// fails matches errors of a command that kubectl did not understand, in contrast to missing objects.
var fails = regexp.MustCompile(`unknown (flag|shorthand|command)|doesn't have a resource type|invalid argument|flag needs an argument|required|must specify|accepts \d|error parsing|unable to parse`)

// absent matches errors about missing objects: on a cluster in which nothing runs, they are expected.
var absent = regexp.MustCompile(`(?i)not ?found|no objects passed|no matching resources`)

// Each kubectl command is run against a real API server with the product's definitions; what would change something, as a dry run.
func TestKubectl_UnderstandsEachCommand(t *testing.T) {
	env := kit.Cluster(t)
	kubectl := filepath.Join(kit.AssetsOrFail(t), "kubectl")
	dir := t.TempDir()
	for _, name := range []string{"charts", "examples"} {
		from, err := filepath.Abs(filepath.Join(top, name))
		require.NoError(t, err)
		require.NoError(t, os.Symlink(from, filepath.Join(dir, name)))
	}
	for _, name := range []string{"app.pem", "webhook-secret", "database-url", "pooler-url", "postgres-url", "ca.crt", "proxy-url", "new", "old"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	tried := map[string]bool{}
	var problems []string
	for _, b := range blocks(t) {
		for _, c := range Commands(b) {
			for _, words := range c.Parts() {
				if c.Unverified != "" || words[0] != "kubectl" || tried[strings.Join(words, " ")] {
					continue
				}
				tried[strings.Join(words, " ")] = true
				for i := range words {
					words[i] = variable.ReplaceAllString(words[i], "x")
				}
				command := exec.CommandContext(await.Context(t), kubectl, dry(words[1:])...) //nolint:gosec // of our own pages
				command.Dir, command.Env = dir, append(os.Environ(), "KUBECONFIG="+env.Plane.AdminKubeconfig())
				command.Stdin = strings.NewReader("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}}")
				output, err := command.CombinedOutput()
				no := strings.HasPrefix(strings.TrimSpace(string(output)), "no") // auth can-i says
				if fails.Match(output) || err != nil && !no && !absent.Match(output) {
					problems = append(problems, c.At()+": "+c.Shell+"\n"+string(output))
				}
			}
		}
	}
	require.Empty(t, problems)
	require.Greater(t, len(tried), 30)
}

// dry makes a command change nothing.
func dry(words []string) []string {
	for i, word := range words {
		switch {
		case word == "--": // what comes is another program's
			return words
		case strings.HasPrefix(word, "--dry-run"):
			return words
		case slices.Contains([]string{"create", "apply", "delete", "patch", "annotate", "label", "scale", "cordon", "drain", "uncordon"}, word):
			dry := append(slices.Clone(words[:i+1]), "--dry-run=server")
			return append(dry, words[i+1:]...)
		case !strings.HasPrefix(word, "-") && i > 0 && words[i-1] != "-n" && words[i-1] != "--namespace":
			return words // get, describe, …
		}
	}
	return words
}

func TestCommands_AreFound(t *testing.T) {
	page := "Say\n\n    make demo       # all\n    FOO=x bullpen jobs -o json | jq '.[] | 1'   # unverified: it needs a Mac\n\n- x\n\n" +
		"```sh\n# unverified: needs GitHub\nwhatever \\\n  --far\n```\n\n    $ bullpen why 1\n    It waits.\n\n    a: b\n\nthen\n\n    # one\n    id=$(openssl rand 3)\n"
	var got []string
	for _, b := range Blocks("p.md", page) {
		for _, c := range Commands(b) {
			got = append(got, c.At()+" "+c.Shell+" ["+c.Unverified+"]")
		}
	}
	require.Equal(t, []string{
		"p.md:3 make demo []", "p.md:4 FOO=x bullpen jobs -o json | jq '.[] | 1' [it needs a Mac]", "p.md:10 whatever --far [needs GitHub]", "p.md:14 bullpen why 1 []",
		"p.md:22 id=$(openssl rand 3) []",
	}, got)
	require.Equal(t, [][]string{{"bullpen", "jobs", "-o", "json"}, {"jq", ".[] | 1"}}, Command{Shell: `FOO=x bullpen jobs -o json 2>/dev/null | jq '.[] | 1' > out`}.Parts())
	require.Equal(t, [][]string{{"date", "-u", "-d", "+1 hour"}, {"kubectl", "get", "x-x", "a b"}}, Command{Shell: `n=1 kubectl get x-$(date -u -d '+1 hour') "a b"`}.Parts())
}
