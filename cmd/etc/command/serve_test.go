package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// freeAddress sets a variable to the port of a server to come, and URL to its address: port NAME.
func freeAddress(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "port NAME")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Check(l.Close())
	ts.Setenv(args[0], port)
	ts.Setenv("URL", "http://127.0.0.1:"+port)
}

// awaitServer waits until the server at $URL is ready: ready.
func awaitServer(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "ready")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		r, err := http.Get(ts.Getenv("URL") + "/ready")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			ts.Fatalf("the server is not ready: %v", err)
		}
	}
}

// post sends JSON to the server at $URL and writes what it answers to a file, which field and grep can look at: post
// STATUS PATH BODY FILE. A body of - is a request with GET.
func post(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 4, "post STATUS PATH BODY FILE")
	method, body := "POST", args[2]
	if body == "-" {
		method, body = "GET", ""
	}
	code, answer, err := ask(method, ts.Getenv("URL")+args[1], body)
	ts.Check(err)
	if args[0] != fmt.Sprint(code) {
		ts.Fatalf("status %d, want %s: %s", code, args[0], answer)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), answer, 0o644))
}

func ask(method, url, body string) (int, []byte, error) {
	q, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, b, err
}

// askAll asks the server at $URL the questions of a file, so many at a time; every answer must be the expected one:
// questions MODEL FILE N. ETC_GOLDENS names a folder with 430 questions in place of 22.
func askAll(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "questions MODEL FILE N")
	var questions []struct{ Q, Expect string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(questionFile(args[1]))), &questions))
	var group errgroup.Group
	n := 0
	fmt.Sscan(args[2], &n) //nolint:errcheck // then it is 0
	group.SetLimit(max(n, 1))
	for _, q := range questions {
		group.Go(func() error {
			text, err := json.Marshal(q.Q)
			if err != nil {
				return err
			}
			code, b, err := ask("POST", ts.Getenv("URL")+"/v1/chat/completions", fmt.Sprintf(
				`{"model": %q, "temperature": 0, "max_tokens": 60, "messages": [{"role": "user", "content": %s}]}`,
				args[0], text))
			if err != nil {
				return err
			}
			var answer struct {
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.Unmarshal(b, &answer); err != nil || code != http.StatusOK || len(answer.Choices) != 1 {
				return fmt.Errorf("%s: status %d: %s", q.Q, code, b)
			}
			if got := answer.Choices[0].Message.Content; got != q.Expect {
				return fmt.Errorf("%s: got %q, want %q", q.Q, got, q.Expect)
			}
			return nil
		})
	}
	ts.Check(group.Wait())
}

// askShared asks the server at $URL to complete a prompt of so many tokens, and then another one that begins with the
// same SHARED tokens: of the second one CACHED tokens must come from the prefix cache. Prompts of other numbers have
// nothing in common: shared MODEL NUMBER TOKENS SHARED CACHED.
func askShared(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 5, "shared MODEL NUMBER TOKENS SHARED CACHED")
	var number, tokens, shared, want int
	_, err := fmt.Sscan(strings.Join(args[1:], " "), &number, &tokens, &shared, &want)
	ts.Check(err)
	prompt := make([]int, tokens)
	for i := range prompt {
		prompt[i] = 100 + (i*i+17*i*number+number)%150
	}
	complete := func() int {
		b, err := json.Marshal(map[string]any{"model": args[0], "prompt": prompt, "max_tokens": 2, "temperature": 0})
		ts.Check(err)
		code, b, err := ask("POST", ts.Getenv("URL")+"/v1/completions", string(b))
		ts.Check(err)
		var answer struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(b, &answer); err != nil || code != http.StatusOK {
			ts.Fatalf("status %d: %s", code, b)
		}
		return answer.Usage.Details.Cached
	}
	if got := complete(); got != 0 {
		ts.Fatalf("%d tokens of the first prompt are cached, want 0", got)
	}
	for i := range prompt[shared:] {
		prompt[shared+i] = 99 - prompt[shared+i]%20
	}
	if got := complete(); got != want {
		ts.Fatalf("%d tokens of the second prompt are cached, want %d", got, want)
	}
}

// questionFile is the file of all questions of a checkpoint in the folder that ETC_GOLDENS names; without it the one
// given.
func questionFile(file string) string {
	if dir := os.Getenv("ETC_GOLDENS"); dir != "" {
		return filepath.Join(dir, "checkpoints", strings.TrimSuffix(filepath.Base(file), ".json"), "hf", "qa_fp32.json")
	}
	return file
}

// sameText compares the text that etc run --json printed to a file with that of a completion: same RUN COMPLETION.
func sameText(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "same RUN COMPLETION")
	var run struct{ Text string }
	var completion struct{ Choices []struct{ Text string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &run))
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &completion))
	if len(completion.Choices) != 1 || completion.Choices[0].Text != run.Text {
		ts.Fatalf("the server gave %v, etc run %q", completion.Choices, run.Text)
	}
}

// sameTexts compares the texts of two completions: sametext A B.
func sameTexts(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "sametext A B")
	var a, b struct{ Choices []struct{ Text string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &a))
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &b))
	if len(a.Choices) == 0 || !slices.Equal(a.Choices, b.Choices) {
		ts.Fatalf("%s has %q, %s has %q", args[0], a.Choices, args[1], b.Choices)
	}
}

// private checks that only their owner can read files: private FILE...
func private(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "private FILE...")
	for _, name := range args {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if mode := info.Mode(); mode != 0o600 {
			ts.Fatalf("%s has mode %s, want -rw-------", name, mode)
		}
	}
}

// countFiles counts the files of a folder: files DIR N.
func countFiles(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "files DIR N")
	list, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if fmt.Sprint(len(list)) != args[1] {
		ts.Fatalf("%s has %d files, want %s: %v", args[0], len(list), args[1], list)
	}
}

// sameAsRun asks the server at $URL the questions of a file, so many at a time, with a temperature and a seed each;
// every answer must have the text and the number of tokens of etc run with the same: sameasrun MODEL.pte FILE N
// TEMPERATURE PRECISION [deterministic]. The model's name is that of the file. ETC_GOLDENS names a folder with 430
// questions in place of 22.
func sameAsRun(ts *testscript.TestScript, neg bool, args []string) {
	deterministic := len(args) == 6 && args[5] == "deterministic"
	usage(ts, neg, len(args) == 5 || deterministic, "sameasrun MODEL.pte FILE N TEMPERATURE PRECISION [deterministic]")
	var questions []struct{ Q string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(questionFile(args[1]))), &questions))
	p, err := openProgram(ts.MkAbs(args[0]))
	ts.Check(err)
	defer p.Close()
	text, err := openText(p, "", false)
	ts.Check(err)
	text.Template, err = openTemplate(p, "")
	ts.Check(err)
	m, err := p.Module("forward")
	ts.Check(err)
	o := engine.Options{Precision: map[string]eval.Precision{"mixed": eval.Mixed, "fp32": eval.FP32}[args[4]],
		Deterministic: deterministic}
	var generate func(context.Context, session.Request) (session.Answer, error)
	if deterministic {
		s, err := execution.OpenAnswerer(args[0], m, cpu.Engine{}, o, execution.Drafting{})
		ts.Check(err)
		defer s.Close()
		generate = s.Generate
	} else {
		model, err := session.LoadDraws(m, cpu.Engine{}, o, session.Draws{})
		ts.Check(err)
		defer model.Close()
		s, err := model.NewSession()
		ts.Check(err)
		defer s.Close()
		generate = func(ctx context.Context, r session.Request) (session.Answer, error) {
			ts.Check(s.Reset())
			return s.Generate(ctx, r)
		}
	}
	n, temperature := 0, float32(0)
	_, err = fmt.Sscan(args[2]+" "+args[3], &n, &temperature)
	ts.Check(err)
	var group errgroup.Group
	group.SetLimit(n)
	for i, q := range questions {
		tokens, err := text.Encode("", q.Q, false)
		ts.Check(err)
		a, err := generate(context.Background(), session.Request{Prompt: tokens, MaxNewTokens: 60, Stop: text.Stop,
			Sampling: session.Sampling{Temperature: temperature, TopK: 200, TopP: 0.99, Seed: int64(i)}})
		ts.Check(err)
		want := text.Decode(a.Tokens)
		group.Go(func() error {
			return sameAnswer(ts.Getenv("URL"), strings.TrimSuffix(args[0], ".pte"), q.Q, temperature,
				i, want, len(a.Tokens))
		})
	}
	ts.Check(group.Wait())
}

// sameAnswer asks one question.
func sameAnswer(url, model, question string, temperature float32, seed int, text string, tokens int) error {
	b, err := json.Marshal(map[string]any{"model": model, "temperature": temperature, "top_k": 200,
		"top_p": 0.99, "seed": seed,
		"max_tokens": 60, "messages": []any{map[string]string{"role": "user", "content": question}}})
	if err != nil {
		return err
	}
	code, b, err := ask("POST", url+"/v1/chat/completions", string(b))
	if err != nil {
		return err
	}
	var answer struct {
		Choices []struct {
			Message struct {
				Content   string
				Reasoning string `json:"reasoning_content"`
			}
		}
		Usage struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil || code != http.StatusOK || len(answer.Choices) != 1 {
		return fmt.Errorf("%s: status %d: %s", question, code, b)
	}
	m := answer.Choices[0].Message
	if strings.TrimSpace(m.Content) != strings.TrimSpace(text) && m.Reasoning == "" || answer.Usage.Tokens != tokens {
		return fmt.Errorf("%s, seed %d: the server gave %d tokens, %q (thoughts %q), etc run %d tokens, %q", question,
			seed,
			answer.Usage.Tokens, m.Content, m.Reasoning, tokens, text)
	}
	return nil
}
