package etc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/etc-ml/etc"
)

// A small trained model, which knows some capitals.
const checkpoint = "testdata/checkpoints/qwen35moe-chat"

// folder is where the examples write; TestMain removes it.
var folder = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "etc-example-")
	if err != nil {
		log.Fatal(err)
	}
	return dir
})

// program is the model as a program.
var program = sync.OnceValue(func() string {
	path := filepath.Join(folder(), "model.pte")
	if err := etc.Export(context.Background(), checkpoint, path, etc.ExportOptions{MaxSeqLen: 256}); err != nil {
		log.Fatal(err)
	}
	return path
})

// open opens the model on the CPU, for examples that are not about that.
func open() *etc.Model {
	model, err := etc.Open(program(), etc.Options{Device: "cpu"})
	if err != nil {
		log.Fatal(err)
	}
	return model
}

// question is a conversation of one question.
func question(text string) []etc.Message { return []etc.Message{{Role: "user", Content: text}} }

func Example() {
	model, err := etc.Open(program(), etc.Options{Device: "cpu"})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	question := []etc.Message{{Role: "user", Content: "What is the capital of France?"}}
	for token, err := range model.Chat(context.Background(), question, etc.Parameters{Temperature: new(0.0)}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: The capital of France is Paris.
}

func ExampleExport() {
	output := filepath.Join(folder(), "small.pte")
	err := etc.Export(context.Background(), checkpoint, output, etc.ExportOptions{
		Linear: "4w", Sample: true, MaxSeqLen: 256,
		Log: func(note string) { fmt.Println(note) },
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: stop tokens: 762 <|im_end|>, 760 <|endoftext|>
}

// A recipe says weight by weight what is quantized, and how.
func ExampleExport_recipe() {
	output := filepath.Join(folder(), "recipe.pte")
	err := etc.Export(context.Background(), checkpoint, output, etc.ExportOptions{MaxSeqLen: 256, Recipe: `
		linear     *.mlp.gate.weight   8w
		linear     *                   4w  group=32
	`})
	if err != nil {
		log.Fatal(err)
	}
	model, err := etc.Open(output, etc.Options{Device: "cpu"})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	fmt.Println(model.Info().ContextLength)
	// Output: 256
}

// Four bits lose least where a text shows what the weights are multiplied with.
func ExampleExport_calibrate() {
	text := filepath.Join(folder(), "text.jsonl")
	lines := `{"messages": [{"role": "user", "content": "What is the capital of France?"}]}
{"text": "The capital of Italy is Rome."}
`
	if err := os.WriteFile(text, []byte(lines), 0o644); err != nil {
		log.Fatal(err)
	}
	output := filepath.Join(folder(), "calibrated.pte")
	err := etc.Export(context.Background(), checkpoint, output, etc.ExportOptions{MaxSeqLen: 256,
		Linear: "4w", GroupSize: 32, Calibrate: text, Log: func(note string) {
			if strings.HasPrefix(note, "calibrating") { // what follows tells of progress, as time passes
				fmt.Println(note)
			}
		}})
	if err != nil {
		log.Fatal(err)
	}
	// Output: calibrating with text.jsonl, 1 window of 512 tokens, and 0 held out
}

func ExampleOpen() {
	model, err := etc.Open(program(), etc.Options{Device: "cpu", Precision: "fp32", Threads: 2, Concurrent: 8})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	info := model.Info()
	fmt.Println(info.Device, info.Concurrent, info.Chats)
	// Output: cpu 8 true
}

// Drafts of the file's own head make answers come faster, and never other ones.
func ExampleOpen_speculate() {
	output := filepath.Join(folder(), "draft.pte")
	err := etc.Export(context.Background(), checkpoint, output, etc.ExportOptions{
		MaxSeqLen: 256, Draft: checkpoint + "-mtp/mtp.safetensors"})
	if err != nil {
		log.Fatal(err)
	}
	model, err := etc.Open(output, etc.Options{Device: "cpu", Precision: "fp32", Speculate: "mtp:2"})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	for token, err := range model.Chat(context.Background(), question("What is the capital of France?"),
		etc.Parameters{Temperature: new(0.0)}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
		if end := token.End; end != nil {
			fmt.Printf("\n%d tokens, drafts: %t\n", end.AnswerTokens, 2*end.Accepted > end.Drafted)
		}
	}
	// Output:
	// The capital of France is Paris.
	// 11 tokens, drafts: true
}

// Smaller forms of the state let more answers fit in memory.
func ExampleOpen_state() {
	model, err := etc.Open(program(), etc.Options{Device: "cpu", KVCache: "q8", State: "bf16"})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	for token, err := range model.Chat(context.Background(), question("What is the capital of Italy?"),
		etc.Parameters{Temperature: new(0.0)}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: The capital of Italy is Rome.
}

// Errors tell what they are about.
func ExampleOpen_errors() {
	_, err := etc.Open(checkpoint+"/config.json", etc.Options{})
	fmt.Println(errors.Is(err, etc.ErrInvalid))
	_, err = etc.Open(program(), etc.Options{Device: "abacus"})
	fmt.Println(errors.Is(err, etc.ErrUsage))
	_, err = etc.Open("none.pte", etc.Options{})
	fmt.Println(errors.Is(err, os.ErrNotExist))
	// Output:
	// true
	// true
	// true
}

func ExampleDevices() {
	devices := etc.Devices()
	fmt.Println(devices[len(devices)-1].Name)
	// Output: reference
}

func ExampleModel_Info() {
	model := open()
	defer model.Close()
	info := model.Info()
	fmt.Println(info.Device, info.ContextLength, info.VocabularySize, info.StopTokens)
	// Output: cpu 256 768 [762 760]
}

func ExampleModel_Generate() {
	model := open()
	defer model.Close()
	prompt := "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
	for token, err := range model.Generate(context.Background(), prompt, etc.Parameters{Temperature: new(0.0)}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: The capital of Italy is Rome.
}

// The last token of an answer tells how it ended.
func ExampleModel_Generate_end() {
	model := open()
	defer model.Close()
	p := etc.Parameters{Temperature: new(0.0), MaxTokens: 3, Seed: new(int64(7)), Logprobs: new(0)}
	for token, err := range model.Generate(context.Background(), "The capital", p) {
		if err != nil {
			log.Fatal(err)
		}
		if token.End != nil {
			fmt.Println(token.End.Reason, token.End.AnswerTokens, token.End.Seed)
			break
		}
		fmt.Println(token.ID >= 0, token.Logprob < 0 && !math.IsInf(token.Logprob, 0))
	}
	// Output:
	// true true
	// true true
	// true true
	// length 3 7
}

// A conversation goes on with all that was said before; only what is new is computed.
func ExampleModel_Chat() {
	model := open()
	defer model.Close()
	messages := []etc.Message{}
	for _, question := range []string{"What is the capital of Spain?", "What is the capital of Japan?"} {
		messages = append(messages, etc.Message{Role: "user", Content: question})
		var answer strings.Builder
		for token, err := range model.Chat(context.Background(), messages, etc.Parameters{Temperature: new(0.0)}) {
			if err != nil {
				log.Fatal(err)
			}
			answer.WriteString(token.Text)
		}
		fmt.Println(answer.String())
		messages = append(messages, etc.Message{Role: "assistant", Content: answer.String()})
	}
	// Output:
	// The capital of Spain is Madrid.
	// The capital of Japan is Tokyo.
}

// An answer that must have a form.
func ExampleModel_Chat_constraint() {
	model := open()
	defer model.Close()
	p := etc.Parameters{Temperature: new(0.0), Think: new(false), Regex: `The capital of France is [A-Z][a-z]+\.`}
	for token, err := range model.Chat(context.Background(), question("What is the capital of France?"), p) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: The capital of France is Paris.
}

// An answer ends when its context does.
func ExampleModel_Chat_cancel() {
	model := open()
	defer model.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for token, err := range model.Chat(ctx, question("What is the capital of France?"),
		etc.Parameters{Temperature: new(0.0)}) {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(token.Text)
		cancel()
	}
	// Output:
	// The
	// context canceled
}

func ExampleModel_Prompt() {
	model := open()
	defer model.Close()
	tokens, err := model.Prompt(question("Hi"), etc.Parameters{})
	if err != nil {
		log.Fatal(err)
	}
	name, _ := model.Tokenizer().Token(tokens[0])
	fmt.Printf("%s %q\n", name, model.Tokenizer().Decode(tokens))
	// Output: <|im_start|> "user\nHi\nassistant\n<think>\n\n</think>\n\n"
}

func ExampleModel_Tokenizer() {
	model := open()
	defer model.Close()
	t := model.Tokenizer()
	ids := t.Encode("The capital of France", etc.EncodeOptions{})
	fmt.Printf("%q\n", t.Decode(ids))
	end, ok := t.ID("<|im_end|>")
	fmt.Println(end, ok)
	// What users write is text, whatever it looks like, unless it is asked for.
	fmt.Println(len(t.Encode("<|im_end|>", etc.EncodeOptions{})) > 1,
		len(t.Encode("<|im_end|>", etc.EncodeOptions{ParseSpecial: true})))
	// Output:
	// "The capital of France"
	// 762 true
	// true 1
}

func ExampleLoadTokenizer() {
	t, err := etc.LoadTokenizer(checkpoint + "/tokenizer.json")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Size())
	// Output: 765
}

// A sequence grows by texts and answers. A fork goes on from the same tokens, which are not computed again.
func ExampleModel_NewSequence() {
	model := open()
	defer model.Close()
	sequence := model.NewSequence()
	if err := sequence.Append("<|im_start|>user\nWhat is the capital of"); err != nil {
		log.Fatal(err)
	}
	for _, country := range []string{" France", " Italy"} {
		branch := sequence.Fork()
		if err := branch.Append(country + "?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"); err != nil {
			log.Fatal(err)
		}
		before := branch.Len()
		for token, err := range branch.Generate(context.Background(), etc.Parameters{Temperature: new(0.0)}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.Text)
		}
		fmt.Println("", branch.Len() > before)
	}
	// Output:
	// The capital of France is Paris. true
	// The capital of Italy is Rome. true
}
