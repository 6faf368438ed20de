package options

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
)

// Options as workflows commonly have them.
func TestParse_CommonPractice(t *testing.T) {
	checked := func(command string) Options {
		return Options{HealthIsChanged: true, Health: health.Override{Command: command, Interval: 10 * time.Second, Timeout: 5 * time.Second, Retries: 5}}
	}
	elasticsearch := checked("curl --fail http://localhost:9200/_cluster/health")
	elasticsearch.Env = []Variable{{Name: "discovery.type", Value: "single-node"}, {Name: "ES_JAVA_OPTS", Value: "-Xms512m -Xmx512m"}}
	elasticsearch.NoFile = &Limit{Soft: 65536, Hard: 65536}
	rabbit := checked("rabbitmqctl node_health_check")
	rabbit.Hostname = "rabbitmq"
	shell := "redis-server"
	for text, want := range map[string]Options{
		// With `>-`, the lines of a workflow are joined by spaces; with `|`, they stay.
		"--health-cmd pg_isready --health-interval 10s --health-timeout 5s --health-retries 5":                                                                                                                                          checked("pg_isready"),
		"--health-cmd pg_isready\n--health-interval 10s\n--health-timeout 5s\n--health-retries 5\n":                                                                                                                                     checked("pg_isready"),
		`--health-cmd="mysqladmin ping -h localhost" --health-interval=10s --health-timeout=5s --health-retries=5`:                                                                                                                      checked("mysqladmin ping -h localhost"),
		`--health-cmd "mysqladmin ping -h localhost -p\"$MYSQL_ROOT_PASSWORD\"" --health-interval 10s --health-timeout 5s --health-retries 5`:                                                                                           checked(`mysqladmin ping -h localhost -p"$MYSQL_ROOT_PASSWORD"`),
		`--health-cmd "mongosh --eval 'db.adminCommand({ping: 1})'" --health-interval 10s --health-timeout 5s --health-retries 5`:                                                                                                       checked("mongosh --eval 'db.adminCommand({ping: 1})'"),
		`--health-cmd 'redis-cli ping | grep PONG' --health-interval 10s --health-timeout 5s --health-retries 5`:                                                                                                                        checked("redis-cli ping | grep PONG"),
		`-e "discovery.type=single-node" -e ES_JAVA_OPTS="-Xms512m -Xmx512m" --ulimit nofile=65536:65536 --health-cmd "curl --fail http://localhost:9200/_cluster/health" --health-interval 10s --health-timeout 5s --health-retries 5`: elasticsearch,
		`--hostname rabbitmq --health-cmd "rabbitmqctl node_health_check" --health-interval 10s --health-timeout 5s --health-retries 5`:                                                                                                 rabbit,
		"--entrypoint redis-server": {Entrypoint: &shell},
		"--user 1001":               {User: "1001"},
		"--user root":               {User: "root"},
		"--name=minio --health-cmd \"curl http://localhost:9000/minio/health/live\"": {Names: []string{"minio"}, HealthIsChanged: true, Health: health.Override{Command: "curl http://localhost:9000/minio/health/live"}},
		"--add-host=host.docker.internal:host-gateway":                               {AddHosts: []Host{{Name: "host.docker.internal", IP: "127.0.0.1"}}},
	} {
		got, err := Parse("db", text, Pool{})
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}
