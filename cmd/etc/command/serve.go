package command

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/serve"
	"github.com/etc-ml/etc/runtime/session"
)

type serveFlags struct {
	host, keyFile, cacheMemory string
	slotDir                    string
	prefixDir, prefixDisk      string
	tlsCert, tlsKey            string
	port, concurrent, queue    int
	requestTime, drain         time.Duration
	noUI, pprof, logJSON       bool
	model                      modelFlags
	speculate                  speculateFlags
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve FILE.pte...",
		Short: "Answer many users over HTTP",
		Long: `serve answers requests in the shapes of OpenAI's API (chat completions, completions, responses) and
Anthropic's (messages), many at a time. A request names its model by the file's name without .pte; several files
are loaded when they are first asked for, and the least recently used one goes when memory is short.
docs/serving.md lists every parameter. At / is a page to chat with the models.

Without --api-key-file everyone who reaches the address may ask; requests from pages of other sites are refused.
Ctrl-C and SIGTERM let running answers end, at most --drain; a second one ends at once.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runServe(cmd.Context(), cmd, args, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.host, "host", "127.0.0.1", "name or address to listen on; 0.0.0.0 for all of IPv4")
	fl.IntVar(&f.port, "port", 8080, "port to listen on; 0 for any free one (default 8080)")
	fl.StringVar(&f.keyFile, "api-key-file", "", "file of API keys, one a line; a request has to show one of them")
	fl.IntVar(&f.concurrent, "max-concurrent", 16, "most answers at a time, of each file")
	fl.IntVar(&f.queue, "max-queue", 256, "most requests that wait beside them; more are told to come again (429)")
	fl.StringVar(&f.cacheMemory, "cache-memory", "",
		"memory for the caches of each file, as 8GiB (default: what its answers at a time need, and as much again "+
			"for prefixes, or more of few answers)")
	fl.StringVar(&f.slotDir, "slot-dir", "",
		"folder for states that /slots saves and restores; they hold what was said (default: none are)")
	fl.StringVar(&f.prefixDir, "prefix-dir", "",
		"folder for what the prefix cache has no memory for, and for what it has when the server ends; it holds what was "+
			"said (default: none)")
	fl.StringVar(&f.prefixDisk, "prefix-disk", "16GiB", "disk space under --prefix-dir of each file, as 16GiB")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "PEM file of the certificate, for https")
	fl.StringVar(&f.tlsKey, "tls-key", "", "PEM file of the certificate's key")
	fl.DurationVar(&f.requestTime, "request-timeout", 0, "longest time for a request, as 5m (default: no limit)")
	fl.DurationVar(&f.drain, "drain", 30*time.Second, "longest time for running answers after a signal")
	fl.BoolVar(&f.noUI, "no-ui", false, "no page at /")
	fl.BoolVar(&f.pprof, "pprof", false, "serve Go's profiles under /debug/pprof/")
	fl.BoolVar(&f.logJSON, "log-json", false, "write the log as JSON")
	f.model.add(cmd, "mixed")
	f.model.addDeterministic(cmd)
	f.speculate.addKind(cmd)
	f.model.addStorage(cmd)
	return cmd
}

// check refuses flags that are out of range or do not go together.
func (f serveFlags) check() error {
	switch {
	case f.port < 0 || f.port > 65535:
		return usagef("--port %d, want 0 to 65535", f.port)
	case f.concurrent < 1 || f.concurrent > 4096:
		return usagef("--max-concurrent %d, want 1 to 4096", f.concurrent)
	case f.queue < 0 || f.queue > 1<<20:
		return usagef("--max-queue %d, want 0 to %d", f.queue, 1<<20)
	case f.requestTime < 0 || f.drain < 0:
		return usagef("--request-timeout and --drain: want 0 or more")
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return usagef("--tls-cert and --tls-key: give both")
	}
	if f.prefixDir != "" {
		if _, err := f.prefixLimit(); err != nil {
			return err
		}
		if err := checkFolder("--prefix-dir", f.prefixDir); err != nil {
			return err
		}
	}
	if f.slotDir != "" {
		return checkFolder("--slot-dir", f.slotDir)
	}
	return nil
}

// prefixLimit returns the number of bytes of --prefix-disk.
func (f serveFlags) prefixLimit() (int64, error) {
	n, err := humanize.ParseBytes(f.prefixDisk)
	if err != nil || n < 1 || n > math.MaxInt64 {
		return 0, usagef("--prefix-disk %s: want a number of bytes, as 16GiB", f.prefixDisk)
	}
	return int64(n), nil
}

// checkFolder refuses a folder of a flag that is none.
func checkFolder(flag, dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", flag, err)
	case !info.IsDir():
		return usagef("%s %s: it is a file, want a folder", flag, dir)
	}
	return nil
}

// keys reads the API keys.
func (f serveFlags) keys() ([]string, error) {
	if f.keyFile == "" {
		return nil, nil
	}
	b, err := readAtMost(nil, f.keyFile, 1<<20)
	if err != nil {
		return nil, err
	}
	var keys []string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, usagef("--api-key-file %s: it has no key, want one a line", f.keyFile)
	}
	return keys, nil
}

// listen opens the address, with TLS where it is asked for.
func (f serveFlags) listen() (net.Listener, error) {
	var config *tls.Config
	if f.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return nil, invalidError{fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.tlsCert, f.tlsKey, err)}
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(f.host, strconv.Itoa(f.port)))
	if err != nil {
		return nil, err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l, nil
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(a net.Addr) bool {
	p, err := netip.ParseAddrPort(a.String())
	return err == nil && p.Addr().Unmap().IsLoopback()
}

func runServe(ctx context.Context, cmd *cobra.Command, args []string, f serveFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	keys, err := f.keys()
	if err != nil {
		return err
	}
	device, options, err := f.model.runner()
	if err != nil {
		return err
	}
	files, memory, err := f.files(cmd, args, device, options)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	if f.logJSON {
		log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	}
	info, _ := debug.ReadBuildInfo()
	traces, endTraces, err := newTraces(ctx, versionOf(info).Version, log)
	if err != nil {
		return err
	}
	defer endTraces()
	server, err := serve.New(serve.Options{Files: files, Memory: memory, Keys: keys, Host: f.host,
		RequestTime: f.requestTime,
		NoPage:      f.noUI, Profile: f.pprof, Version: versionOf(info).Version, Log: log, Traces: traces})
	if err != nil {
		return usageError{err}
	}
	l, err := f.listen()
	if err != nil {
		return errors.Join(err, server.Close())
	}
	release := holdSignals()
	defer release()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, f.drain) }()
	if err := server.Ready(ctx); err != nil && ctx.Err() == nil {
		stop()
		return errors.Join(err, <-served)
	}
	if ctx.Err() == nil {
		f.announce(cmd, l, files, len(keys) > 0)
	}
	return <-served
}

// announce says where the server is.
func (f serveFlags) announce(cmd *cobra.Command, l net.Listener, files []serve.File, keyed bool) {
	var names []string
	for _, x := range files {
		names = append(names, x.Name)
	}
	scheme := "http"
	if f.tlsCert != "" {
		scheme = "https"
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if !keyed && !isLoopback(l.Addr()) {
		logf(cmd.ErrOrStderr(), "etc: everyone who reaches %s may use this server: set --api-key-file", l.Addr())
	}
	logf(cmd.ErrOrStderr(), "etc: serving %s on %s://%s", strings.Join(names, ", "), scheme,
		net.JoinHostPort(f.host, port))
}

// files reads what the files say of themselves, without loading them. memory bounds what they may take together.
func (f serveFlags) files(cmd *cobra.Command, args []string, device engine.Engine,
	options engine.Options) (files []serve.File,
	memory int64, err error) {
	if device, err = chosen(device, options.Precision); err != nil {
		return nil, 0, loadError(args[0], err)
	}
	available, where := memoryOn(device)
	seen := map[string]string{}
	for _, path := range args {
		name := strings.TrimSuffix(filepath.Base(path), ".pte")
		if other, twice := seen[name]; twice {
			return nil, 0, usagef("%s and %s have the same name, by which requests tell models apart", other, path)
		}
		seen[name] = path
		s := &servedFile{flags: f, available: available, where: where, Shared: execution.Shared{Path: path,
			Engine: device, Options: options, Sequences: f.concurrent, Queue: f.queue},
			log: func(format string, args ...any) { logf(cmd.ErrOrStderr(), format, args...) }}
		if err := s.measure(cmd); err != nil {
			return nil, 0, err
		}
		if s.text.Template == nil {
			logf(cmd.ErrOrStderr(), "etc: %s holds no chat template: it answers /v1/completions only", path)
		}
		for _, key := range s.text.Unused {
			if !prompt.RuntimeKeys[key] {
				logf(cmd.ErrOrStderr(), "etc: %s: the %s of the generation config is not supported and not used", path,
					key)
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, 0, err
		}
		files = append(files, serve.File{Name: name, Created: info.ModTime(),
			Memory: s.weights + s.Budget, Waiting: f.concurrent + f.queue, Load: s.load})
	}
	return files, available, nil
}

// servedFile is a file of a server. Its Budget is for the caches.
type servedFile struct {
	execution.Shared
	flags serveFlags
	log   func(format string, args ...any)

	text *text
	// What the weights take, and what there is, in bytes; 0: not known.
	weights, available int64
	where              string // the device that the memory is of; "" for the machine's
}

// measure opens the file and chooses the memory of its caches.
func (s *servedFile) measure(cmd *cobra.Command) error {
	p, err := openProgram(s.Path)
	if err != nil {
		return err
	}
	defer p.Close()
	if s.text, err = (prompt.Source{}).Open(p); err != nil {
		return err
	}
	if s.Drafts, err = s.flags.speculate.in(cmd, s.Path, p); err != nil {
		return err
	}
	m, err := execution.ModuleWith(p, s.Drafts.Kind)
	if err != nil {
		return err
	}
	d, err := session.Describe(m.Only(m.Entry))
	if err != nil {
		return invalidError{fmt.Errorf("%s: %w", s.Path, err)}
	}
	need := needOf(m, d.MaxSeqLen, s.Engine, s.Options.Precision)
	s.weights, s.State = need.Weights, max(need.State, 1)
	if err := s.setBudget(need, d.MaxSeqLen); err != nil {
		return err
	}
	if s.where != "" {
		s.fitDevice(s.available)
	}
	return nil
}

// setBudget chooses the memory of the caches: what --cache-memory says, else by the number of answers at a time.
func (s *servedFile) setBudget(need session.Memory, positions int) error {
	if text := s.flags.cacheMemory; text != "" {
		n, err := humanize.ParseBytes(text)
		if err != nil || int64(n) < 2*s.State {
			return usagef("--cache-memory %s: want a number of bytes, as 8GiB, of at least two sequences of %s (%s)",
				text,
				humanize.IBytes(uint64(s.State)), s.Path)
		}
		s.Budget = int64(n)
		if left := s.available - s.weights; s.available > 0 && s.where == "" && s.Budget > left {
			size := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
			return kind.Of(kind.ErrMemory, fmt.Errorf("--cache-memory %s: %s has weights of %s, and leaves %s of the "+
				"memory that is available", text, s.Path, size(s.weights), size(left)))
		}
		return nil
	}
	f := fit{File: s.Path, Need: need, Context: positions, Device: s.where}
	var err error
	s.Budget, err = f.Budget(s.flags.concurrent, s.Drafts.Most, s.available)
	return err
}

// load loads the file. Its errors have the names of flags, as clients and the log see them.
func (s *servedFile) load() (*serve.Loaded, error) {
	l, err := s.open()
	if err != nil {
		return nil, namedError{err, flagNames.Replace(err.Error())}
	}
	return l, nil
}

// open opens the file and compiles it.
func (s *servedFile) open() (*serve.Loaded, error) {
	p, err := openProgram(s.Path)
	if err != nil {
		return nil, err
	}
	m, err := execution.ModuleWith(p, s.Drafts.Kind)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	closeFiles := p.Close
	s.Check = s.checkAlone
	s.Adjust = func(x batch.Executor, o *batch.Options) error {
		folder, err := s.prefixes(x)
		if folder == nil || err != nil {
			return err
		}
		o.Disk, o.DiskProgram = folder, statefile.Identify(p)+" "+s.flags.model.precision
		closeFiles = func() error { return errors.Join(folder.Close(), p.Close()) }
		return nil
	}
	runner, err := s.Run(m)
	if err != nil {
		return nil, errors.Join(err, closeFiles())
	}
	if n := runner.Room(); n < runner.Sequences() {
		s.log("etc: %s: caches of %s have room for %d answers at a time, not for --max-concurrent %d: the others wait",
			s.Path, humanize.IBytes(uint64(s.Budget)), n, s.flags.concurrent)
	}
	text, err := s.serveText(runner.Limits())
	if err != nil {
		return nil, errors.Join(err, runner.Close(), closeFiles())
	}
	l := &serve.Loaded{Runner: runner, Text: text, Device: s.Engine.Name(), Close: closeFiles}
	if s.flags.slotDir != "" {
		l.Slots = &statefile.Slots{Dir: s.flags.slotDir, Model: strings.TrimSuffix(filepath.Base(s.Path), ".pte"),
			Of: statefile.Owner{File: s.Path, Program: statefile.Identify(p), Precision: s.flags.model.precision}}
	}
	return l, nil
}

// checkAlone checks a program of one sequence at a time, and fits the caches to the device where only the compiled
// program knows its memory.
func (s *servedFile) checkAlone(m *ir.Module, model *session.Model) error {
	if err := checkMemory(s.Path, m, model, s.Engine, s.Options.Precision, 2, 0); err != nil {
		return err
	}
	if bytes, ok := model.DeviceMemory(); ok {
		s.fitDevice(bytes)
	}
	return nil
}

// fitDevice bounds the caches by the memory of a device.
func (s *servedFile) fitDevice(bytes int64) {
	s.Budget = max(2*s.State, min(s.Budget, (bytes-s.weights)/2))
}
