package serve

import (
	"container/list"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

// scrape reads the metrics of a server as a router of a fleet does.
func (s *testServer) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	r, err := http.Get(s.http.URL + "/metrics")
	require.NoError(s.t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	p := expfmt.NewTextParser(prometheus.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(string(b)))
	require.NoError(s.t, err)
	return families
}

// TestEndpointPickerMetrics: the metrics that gateway-api-inference-extension's endpoint picker reads by default are
// there, under the names, with the types, labels and ranges that it expects: waiting and running requests, the share of
// the cache that is in use from 0 to 1, and blocks of the prefix cache. (It has a fifth one, of LoRA adapters, which
// etc has none of.)
func TestEndpointPickerMetrics(t *testing.T) {
	s := startServer(t, does("Good day."), nil)
	s.object(chatPath, `{`+hello+`}`)
	families := s.scrape()
	for _, name := range []string{"vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc",
		"vllm:cache_config_info"} {
		f := families[name]
		require.NotNil(t, f, "%s in %v", name, slices.Sorted(maps.Keys(families)))
		require.Equal(t, dto.MetricType_GAUGE, f.GetType(), name)
		require.Len(t, f.Metric, 1)
		require.Equal(t, "small", labels(f.Metric[0])["model_name"])
	}
	used := families["vllm:kv_cache_usage_perc"].Metric[0].GetGauge().GetValue()
	require.True(t, used >= 0 && used <= 1, used)
	info := labels(families["vllm:cache_config_info"].Metric[0])
	for _, name := range []string{"block_size", "num_gpu_blocks"} {
		n, err := strconv.Atoi(info[name])
		require.NoError(t, err)
		require.Positive(t, n, name)
	}
}

// TestMetricsOfFullMemory: what waits for memory is told as waiting, though more answers may run at a time, and the
// caches are told as full.
func TestMetricsOfFullMemory(t *testing.T) {
	s, step := slowly(t, 200, func(r *batch.Options) { r.Sequences, r.Budget, r.Prefix = 8, 3, 0 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked sync.WaitGroup
	for range 5 {
		asked.Go(func() {
			q, err := http.NewRequestWithContext(ctx, "POST", s.http.URL+chatPath, strings.NewReader(`{`+hello+`}`))
			assert.NoError(t, err)
			if r, err := s.http.Client().Do(q); err == nil {
				r.Body.Close()
			}
		})
	}
	value := func(name string) float64 { return s.scrape()[name].Metric[0].GetGauge().GetValue() }
	for s.runner().Active() < 5 {
		runtime.Gosched()
	}
	for done := false; !done; {
		step <- struct{}{}
		st := s.runner().Stats()
		done = st.Running+st.Waiting == 5 && st.Running > 0
	}
	require.Equal(t, 3.0, value("vllm:num_requests_running"))
	require.Equal(t, 2.0, value("vllm:num_requests_waiting"))
	require.Equal(t, 1.0, value("vllm:kv_cache_usage_perc"))
	cancel()
	close(step)
	asked.Wait()
}

func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.Label {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// picker chooses a server of a fleet in the manner of an endpoint picker: by the metrics that each server tells, and by
// the blocks of the prompts that it has sent there before, of which it remembers as many as the server has.
type picker struct {
	fleet []*testServer
	sent  []*sentBlocks
}

// sentBlocks are the blocks sent to a server, the latest in front.
type sentBlocks struct {
	order *list.List
	at    map[string]*list.Element
}

func newPicker(fleet []*testServer) *picker {
	p := &picker{fleet: fleet}
	for range fleet {
		p.sent = append(p.sent, &sentBlocks{list.New(), map[string]*list.Element{}})
	}
	return p
}

// blocksOf are the beginnings of a text by blocks of so many characters.
func blocksOf(text string, size int) (out []string) {
	for n := size; n <= len(text); n += size {
		out = append(out, text[:n])
	}
	return out
}

// score says how good a server is for a prompt: by the share of its blocks that the server has seen, its queue and its
// cache.
func (p *picker) score(i int, prompt string) (score float64, size, most int) {
	families := p.fleet[i].scrape()
	value := func(name string) float64 { return families[name].Metric[0].GetGauge().GetValue() }
	info := labels(families["vllm:cache_config_info"].Metric[0])
	size, _ = strconv.Atoi(info["block_size"])
	most, _ = strconv.Atoi(info["num_gpu_blocks"])
	blocks := blocksOf(prompt, size)
	seen := 0
	for _, b := range blocks {
		if p.sent[i].at[b] == nil {
			break
		}
		seen++
	}
	share := float64(seen) / float64(max(len(blocks), 1))
	return 2*share - value("vllm:num_requests_waiting")/10 - value("vllm:num_requests_running")/10 -
		value("vllm:kv_cache_usage_perc"), size, most
}

// pick chooses a server and remembers what it is sent.
func (p *picker) pick(prompt string, random *rand.Rand) int {
	best, at, size, most := -1e9, 0, 1, 1
	for _, i := range random.Perm(len(p.fleet)) {
		if s, n, m := p.score(i, prompt); s > best {
			best, at, size, most = s, i, n, m
		}
	}
	s := p.sent[at]
	for _, b := range blocksOf(prompt, size) {
		if e := s.at[b]; e != nil {
			s.order.MoveToFront(e)
			continue
		}
		s.at[b] = s.order.PushFront(b)
		if s.order.Len() > most {
			delete(s.at, s.order.Remove(s.order.Back()).(string))
		}
	}
	return at
}

// talk is a conversation of some turns.
type talk struct {
	messages []string
	left     int
}

// simulate runs conversations over a fleet, each turn where choose says, and gives the share of the prompts' tokens
// that was cached, and the requests of each server.
func simulate(t *testing.T, fleet []*testServer, choose func(prompt string) int) (cached float64, each []int) {
	random := rand.New(rand.NewPCG(11, 12))
	var talks []*talk
	for i := range 24 {
		talks = append(talks, &talk{[]string{fmt.Sprintf(`{"role": "user", "content": "%d: %s"}`, i,
			strings.Repeat(fmt.Sprint("tell me ", i, " "), 6))}, 4})
	}
	each = make([]int, len(fleet))
	prompt, hits := 0.0, 0.0
	for len(talks) > 0 {
		n := random.IntN(len(talks))
		c := talks[n]
		body := strings.Join(c.messages, ", ")
		at := choose(strings.ReplaceAll(body, `{"role": "user", "content": "`, "")) // what they say
		each[at]++
		o := fleet[at].object(chatPath, `{"messages": [`+body+`]}`)
		usage := o["usage"].(map[string]any)
		prompt += usage["prompt_tokens"].(float64)
		hits += usage["prompt_tokens_details"].(map[string]any)["cached_tokens"].(float64)
		c.messages = append(c.messages, `{"role": "assistant", "content": "As you say."}`,
			`{"role": "user", "content": "And then?"}`)
		if c.left--; c.left == 0 {
			talks = slices.Delete(talks, n, n+1)
		}
	}
	return hits / prompt, each
}

// TestFleet: a fleet whose router goes by the metrics and by prefixes finds most of its prompts cached, and shares the
// work; one that goes by neither finds few.
func TestFleet(t *testing.T) {
	start := func() (fleet []*testServer) {
		for range 4 {
			fleet = append(fleet, startServer(t, does("As you say."), nil))
		}
		return fleet
	}
	random := rand.New(rand.NewPCG(1, 1))
	blind, _ := simulate(t, start(), func(string) int { return random.IntN(4) })
	fleet := start()
	router := newPicker(fleet)
	aware, each := simulate(t, fleet, func(prompt string) int { return router.pick(prompt, random) })
	t.Logf("cached: %.2f by prefixes, %.2f at random; requests of each server %v", aware, blind, each)
	require.Greater(t, aware, 0.4, "the first turns and the last lines are new")
	require.Greater(t, aware, 2*blind)
	require.Positive(t, slices.Min(each))
	require.Less(t, slices.Max(each), 3*slices.Min(each)+10, "%v", each)
	for _, s := range fleet {
		families := s.scrape()
		rows := map[string]float64{}
		for _, m := range families["etc_tokens_total"].Metric {
			rows[labels(m)["kind"]] = m.GetCounter().GetValue()
		}
		require.Positive(t, rows["cached"])
		require.Zero(t, families["vllm:num_requests_running"].Metric[0].GetGauge().GetValue())
	}
}
