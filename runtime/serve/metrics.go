package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the metrics of /metrics. Those whose names start with vllm: are read by gateway-api-inference-extension's
// endpoint picker, which chooses a server of a fleet.
type metrics struct {
	registry *prometheus.Registry
	server   *Server
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	first    *prometheus.HistogramVec
	between  *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
}

// buckets of times in seconds, from a millisecond to minutes.
var buckets = prometheus.ExponentialBuckets(0.001, 2, 18)

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), server: s}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	m.requests = counter("etc_requests_total", "Requests answered.", "path", "status")
	m.seconds = histogram("etc_request_seconds", "Time of a request.", "path")
	m.first = histogram("etc_first_token_seconds", "Time until the first part of an answer.", "model_name")
	m.between = histogram("etc_between_tokens_seconds", "Time between the parts of an answer.", "model_name")
	m.tokens = counter("etc_tokens_total", "Tokens of prompts, of those that were cached, and of answers.",
		"model_name",
		"kind")
	m.registry.MustRegister(models{s})
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) request(path string, code int, took time.Duration) {
	m.requests.WithLabelValues(path, strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(path).Observe(took.Seconds())
}

// observer times the parts of one answer.
type observer struct {
	m     *metrics
	visit *visit
	last  time.Time
}

func (s *Server) observe(r *http.Request) *observer {
	return &observer{m: s.metrics, visit: r.Context().Value(visitKey{}).(*visit)}
}

// piece notes that a part of the answer is there.
func (o *observer) piece() {
	now := time.Now()
	if o.last.IsZero() {
		o.visit.first = now.Sub(o.visit.begun)
		o.m.first.WithLabelValues(o.visit.model).Observe(o.visit.first.Seconds())
	} else {
		o.m.between.WithLabelValues(o.visit.model).Observe(now.Sub(o.last).Seconds())
	}
	o.last = now
}

// usage notes the tokens of the whole answer.
func (o *observer) usage(u usage) {
	o.visit.usage = u
	for kind, n := range map[string]int{"prompt": u.prompt, "cached": u.cached, "answer": u.answer} {
		o.m.tokens.WithLabelValues(o.visit.model, kind).Add(float64(n))
	}
}

// models collects the figures of the runners of all models.
type models struct{ s *Server }

// gauges of a model.
var (
	gaugeWaiting = description("vllm:num_requests_waiting", "Sequences that wait.")
	gaugeRunning = description("vllm:num_requests_running", "Sequences that run.")
	gaugeUsed    = description("vllm:kv_cache_usage_perc", "Share of the caches that running sequences hold: of "+
		"bytes, blocks or slots, the largest.")
	gaugeBytes   = description("etc_cache_bytes", "Bytes of caches.", "state")
	gaugeLoaded  = description("etc_model_loaded", "Whether the model is in memory.")
	countCalls   = description("etc_calls_total", "Calls of the program.")
	countRows    = description("etc_rows_total", "Rows of all calls.", "kind")
	countFailed  = description("etc_calls_failed_total", "Calls that ended with an error of the device.")
	countPreempt = description("etc_preempted_total", "Times that a sequence gave its cache back before its end.")
	countDrafted = description("vllm:spec_decode_num_draft_tokens_total", "Tokens that were drafted.")
	countRight   = description("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.")
	countRounds  = description("vllm:spec_decode_num_drafts_total",
		"Rows of drafts that a call verified for a sequence.")
	gaugeRight = description("etc_draft_acceptance", "Part of the drafted tokens that was accepted.")
	cacheInfo  = description("vllm:cache_config_info", "Blocks of the prefix cache.", "block_size", "num_gpu_blocks")
)

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"model_name"}, labels...), nil)
}

// Describe implements prometheus.Collector.
func (c models) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gaugeWaiting, gaugeRunning, gaugeUsed, gaugeBytes, gaugeLoaded, countCalls,
		countRows, countFailed, countPreempt, countDrafted, countRight, countRounds, gaugeRight, cacheInfo} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c models) Collect(out chan<- prometheus.Metric) {
	c.s.pool.each(func(m *model, l *Loaded) {
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, kind, v, append([]string{m.Name}, labels...)...)
		}
		if l == nil {
			send(gaugeLoaded, prometheus.GaugeValue, 0)
			return
		}
		s := l.Runner.Stats()
		running := min(l.Runner.Active(), l.Runner.Sequences())
		if s.Waiting > 0 { // in the last call, for memory
			running = min(running, s.Running)
		}
		send(gaugeLoaded, prometheus.GaugeValue, 1)
		send(gaugeRunning, prometheus.GaugeValue, float64(running))
		send(gaugeWaiting, prometheus.GaugeValue, float64(l.Runner.Active()-running))
		send(gaugeUsed, prometheus.GaugeValue, s.Pressure)
		send(gaugeBytes, prometheus.GaugeValue, float64(s.Used-s.Idle), "running")
		send(gaugeBytes, prometheus.GaugeValue, float64(s.Idle), "prefix")
		send(gaugeBytes, prometheus.GaugeValue, float64(s.Budget), "budget")
		send(countCalls, prometheus.CounterValue, float64(s.Calls))
		send(countRows, prometheus.CounterValue, float64(s.DecodeRows), "decode")
		send(countRows, prometheus.CounterValue, float64(s.PromptRows), "prompt")
		send(countRows, prometheus.CounterValue, float64(s.DraftRows), "draft")
		send(countFailed, prometheus.CounterValue, float64(s.Failed))
		send(countPreempt, prometheus.CounterValue, float64(s.Preempted))
		send(countDrafted, prometheus.CounterValue, float64(s.Drafts.Drafted))
		send(countRight, prometheus.CounterValue, float64(s.Drafts.Accepted))
		send(countRounds, prometheus.CounterValue, float64(s.Drafts.Rounds))
		send(gaugeRight, prometheus.GaugeValue, s.Drafts.Acceptance())
		layout := l.Runner.Layout()
		unit := layout.BlockBytes // prefixes are as long as their blocks; of their states there are few
		if unit == 0 {
			for unit = layout.SlotBytes; len(layout.Rings) > 0; layout.Rings = layout.Rings[1:] {
				unit += layout.Rings[0].BlockBytes
			}
			unit = max(unit, 1)
		}
		send(cacheInfo, prometheus.GaugeValue, 1, strconv.Itoa(layout.BlockRows), formatInt(s.Budget/unit))
	})
}
