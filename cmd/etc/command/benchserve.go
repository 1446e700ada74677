package command

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etc-ml/etc/runtime/bench/serving"
)

// benchServeFlags choose what of a server is measured.
type benchServeFlags struct {
	url, model, keyFile string
	concurrent          []int
	requests            int
	seed                int64 // of the prompts, below 0: a new one
	remote              bool
}

// benchServeNames are the flags that only go with --serve, benchServeToo those of bench that do.
var (
	benchServeNames = []string{"serve", "concurrent", "requests", "prompt-seed", "model", "api-key-file", "remote"}
	benchServeToo   = []string{"n-prompt", "n-gen", "json"}
)

func (f *benchServeFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.url, "serve", "", "measure the server at this address, as http://127.0.0.1:8080")
	fl.IntSliceVar(&f.concurrent, "concurrent", []int{1}, "streams at a time, with --serve, as 1,8,32")
	fl.IntVar(&f.requests, "requests", 0, "answers of each row, with --serve (default: 4 for each stream)")
	fl.Int64Var(&f.seed, "prompt-seed", -1,
		"0 or more: prompts, with --serve, that are the same in every run with this number (default: new ones)")
	fl.StringVar(&f.model, "model", "", "name of the model, with --serve (default: the server's first)")
	fl.StringVar(&f.keyFile, "api-key-file", "", "file whose first line is the API key, with --serve")
	fl.BoolVar(&f.remote, "remote", false, "let --serve name another machine: ask its people first")
}

// unused refuses flags that only go with --serve.
func (f benchServeFlags) unused(cmd *cobra.Command) error {
	for _, name := range benchServeNames {
		if cmd.Flags().Changed(name) {
			return usagef("--%s goes with --serve URL, not with a file", name)
		}
	}
	return nil
}

// check refuses flags that do not go with --serve, and addresses that are not of this machine.
func (f benchServeFlags) check(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if err == nil && !slices.Contains(benchServeNames, fl.Name) && !slices.Contains(benchServeToo, fl.Name) {
			err = usagef("--%s does not go with --serve: it is of the server, or of a file", fl.Name)
		}
	})
	if err != nil {
		return err
	}
	u, err := url.Parse(f.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("--serve %q: want an address, as http://127.0.0.1:8080", f.url)
	}
	if !f.remote && !isThisMachine(u.Hostname()) {
		return usagef("--serve %s: %s may be another machine, whose people should know of the load; --remote allows it",
			f.url,
			u.Hostname())
	}
	return nil
}

// isThisMachine reports whether a host is a name or an address of the loopback interface.
func isThisMachine(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// serverResult is what --serve --json prints. Times are in seconds.
type serverResult struct {
	Server string `json:"server"`
	Model  string `json:"model"`
	// Seed is that of the prompts: --prompt-seed asks for them again.
	Seed int64         `json:"prompt_seed"`
	Rows []serving.Row `json:"rows"`
}

// measureServer measures and prints the rows of a server.
func measureServer(cmd *cobra.Command, f benchFlags) error {
	if err := f.served.check(cmd); err != nil {
		return err
	}
	seed := f.served.seed
	if seed < 0 {
		seed = rand.Int64N(1 << 31)
	}
	o := serving.Options{URL: f.served.url, Model: f.served.model, Concurrent: f.served.concurrent,
		Requests: f.served.requests, Seed: uint64(seed),
		Prompt: f.prompt, Generate: f.generate}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	keys, err := serveFlags{keyFile: f.served.keyFile}.keys()
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		o.Key = keys[0]
	}
	o.Started = func(r serving.Row) {
		logf(cmd.ErrOrStderr(), "etc: %s, %s of %d tokens to prompts of %d, after a warm-up",
			count(r.Concurrent, "stream"),
			count(r.Requests, "answer"), r.Generate, r.Prompt)
	}
	r := serverResult{Server: f.served.url, Seed: seed}
	r.Model, r.Rows, err = serving.Run(cmd.Context(), o)
	var refused *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Op == "dial":
		return fmt.Errorf("%w: is the server running? etc serve prints its address", err)
	case err != nil && (f.json || len(r.Rows) == 0):
		return err
	case f.json:
		return writeJSON(cmd.OutOrStdout(), r)
	}
	return errors.Join(err, r.write(cmd)) // what was measured before the error is right
}

// write writes the rows as a table. Times are in milliseconds.
func (r serverResult) write(cmd *cobra.Command) error {
	table := [][]string{{"model", "streams", "answers", "prompt", "answer", "first ms p50", "p99",
		"between ms p50", "p99",
		"tokens/s of one", "of all", "cached"}}
	ms := func(seconds float64) string { return fmt.Sprintf("%.2f", 1000*seconds) }
	for _, x := range r.Rows {
		table = append(table, []string{strings.ReplaceAll(r.Model, "|", `\|`), fmt.Sprint(x.Concurrent),
			fmt.Sprint(x.Requests),
			fmt.Sprint(x.Prompt), fmt.Sprint(x.Generate), ms(x.First.P50), ms(x.First.P99),
			ms(x.Between.P50), ms(x.Between.P99),
			speed(x.Stream), speed(x.Total),
			fmt.Sprintf("%.0f %%", 100*float64(x.Cached)/float64(x.Prompt*x.Requests))})
	}
	return writeMarkdown(shownOut(cmd), table, "lrrrrrrrrrrr")
}
