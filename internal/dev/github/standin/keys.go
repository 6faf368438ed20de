package standin

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"sync"
)

// runnerKeyBits is the size of a registration's key, as GitHub makes them.
const runnerKeyBits = 2048

// runnerKey is a key and its encoding for the JIT blob.
type runnerKey struct {
	public *rsa.PublicKey
	params []byte // .credentials_rsaparams
}

// keyPool keeps keys ahead of need: making one costs a tenth of a second of processor time, and a mint should not.
type keyPool struct {
	size  int
	fresh bool // each key is given out once

	mu    sync.Mutex
	keys  []*runnerKey
	next  int
	taken chan struct{}
}

func newKeyPool(size int, fresh bool) *keyPool {
	return &keyPool{size: size, fresh: fresh, taken: make(chan struct{}, 1)}
}

// fill keeps the pool full until ctx ends.
func (p *keyPool) fill(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		full := len(p.keys) >= p.size
		p.mu.Unlock()
		if full {
			select {
			case <-ctx.Done():
			case <-p.taken:
			}
			continue
		}
		key, err := makeRunnerKey()
		if err != nil {
			continue // only a broken source of randomness, which crypto/rand turns into a crash anyway
		}
		p.mu.Lock()
		p.keys = append(p.keys, key)
		p.mu.Unlock()
	}
}

// take returns a key; it makes one when none is ready.
func (p *keyPool) take() (*runnerKey, error) {
	p.mu.Lock()
	if len(p.keys) > 0 {
		defer p.mu.Unlock()
		if !p.fresh {
			p.next = (p.next + 1) % len(p.keys)
			return p.keys[p.next], nil
		}
		key := p.keys[0]
		p.keys = p.keys[1:]
		select {
		case p.taken <- struct{}{}:
		default:
		}
		return key, nil
	}
	p.mu.Unlock()
	key, err := makeRunnerKey()
	if err == nil && !p.fresh {
		p.mu.Lock()
		p.keys = append(p.keys, key)
		p.mu.Unlock()
	}
	return key, err
}

func makeRunnerKey() (*runnerKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, runnerKeyBits)
	if err != nil {
		return nil, fmt.Errorf("making a runner's key: %w", err)
	}
	// .NET wants every number at its full width.
	wide := func(n *big.Int, bits int) string {
		return base64.StdEncoding.EncodeToString(n.FillBytes(make([]byte, bits/8)))
	}
	half := runnerKeyBits / 2
	params, err := json.Marshal(map[string]string{
		"d":        wide(key.D, runnerKeyBits),
		"dp":       wide(key.Precomputed.Dp, half),
		"dq":       wide(key.Precomputed.Dq, half),
		"exponent": base64.StdEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		"inverseQ": wide(key.Precomputed.Qinv, half),
		"modulus":  wide(key.N, runnerKeyBits),
		"p":        wide(key.Primes[0], half),
		"q":        wide(key.Primes[1], half),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a runner's key: %w", err)
	}
	return &runnerKey{public: &key.PublicKey, params: params}, nil
}

// Where the services of the runner protocol live.
const (
	pathPipelines = "/_services/pipelines" // the old flow's tenant: connectionData and its sessions
	pathToken     = "/_services/token"
	pathBroker    = "/_services/broker"
	pathRun       = "/_services/run"
	pathResults   = "/_services/results"
	pathCache     = "/_services/cache" // of the first version of the cache service, which GitHub has shut down: nothing answers here
)

// defaultPoolID is the runner pool (GitHub: group) every registration is in unless its request says otherwise.
const defaultPoolID = 1

// jitBlob encodes what generate-jitconfig answers: files by name, each base64, the whole base64 again.
func (s *Server) jitBlob(rn *runner, key *runnerKey) (string, error) {
	settings, err := json.Marshal(map[string]any{
		"AgentId": strconv.FormatInt(rn.id, 10), "AgentName": rn.name,
		"PoolId": strconv.FormatInt(rn.groupID, 10), "PoolName": rn.scope.groupName(rn.groupID),
		"ServerUrl": s.opts.URL + pathPipelines + "/", "ServerUrlV2": s.opts.URL + pathBroker + "/",
		"UseV2Flow": true, "GitHubUrl": "", "WorkFolder": rn.workFolder,
		"Ephemeral": "True", "DisableUpdate": "True", "SkipSessionRecover": "True",
	})
	if err != nil {
		return "", fmt.Errorf("encoding the runner's settings: %w", err)
	}
	credentials, err := json.Marshal(map[string]any{
		"Scheme": "OAuth",
		"Data": map[string]string{
			"ClientId": rn.clientID, "AuthorizationUrl": s.opts.URL + pathToken, "RequireFipsCryptography": "True",
		},
	})
	if err != nil {
		return "", fmt.Errorf("encoding the runner's credentials: %w", err)
	}
	blob, err := json.Marshal(map[string][]byte{
		".runner": settings, ".credentials": credentials, ".credentials_rsaparams": key.params,
	})
	if err != nil {
		return "", fmt.Errorf("encoding the JIT configuration: %w", err)
	}
	return base64.StdEncoding.EncodeToString(blob), nil
}

// defaultGroup is the group that every organization, enterprise and repository has.
const defaultGroup = "Default"

// groupName is the name of one of the scope's groups: those beside Default count from 2.
func (sc *scope) groupName(id int64) string {
	if n := int(id) - defaultPoolID - 1; n >= 0 && n < len(sc.owner.groups) {
		return sc.owner.groups[n]
	}
	return defaultGroup
}
