package etc_test

import (
	"context"
	"fmt"
	"log"
	"path/filepath"
	"strings"

	"github.com/etc-ml/etc"
)

// openSession opens the model on the CPU for one user.
func openSession(p etc.Parameters) *etc.Session {
	session, err := etc.OpenSession(program(), etc.Options{Device: "cpu"}, p)
	if err != nil {
		log.Fatal(err)
	}
	return session
}

// One answer, for a program that asks for no more than one at a time.
func ExampleOpenSession() {
	session, err := etc.OpenSession(program(), etc.Options{Device: "cpu"}, etc.Parameters{Temperature: new(0.0)})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for token, err := range session.Chat(context.Background(), question("What is the capital of France?")) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: The capital of France is Paris.
}

// A conversation lies in the session.
func ExampleSession_Ask() {
	session := openSession(etc.Parameters{Temperature: new(0.0)})
	defer session.Close()
	for _, question := range []string{"What is the capital of Spain?", "What is the capital of Japan?"} {
		for token, err := range session.Ask(context.Background(), question) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.Text)
		}
		fmt.Println()
	}
	fmt.Println(len(session.Messages()), "messages")
	// Output:
	// The capital of Spain is Madrid.
	// The capital of Japan is Tokyo.
	// 4 messages
}

// A conversation goes on in another process, with the state of the model, so that nothing is computed anew.
func ExampleSession_Save() {
	file := filepath.Join(folder(), "chat.session")
	ask := func(s *etc.Session, question string) *etc.End {
		for token, err := range s.Ask(context.Background(), question) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.Text)
			if token.End != nil {
				fmt.Println()
				return token.End
			}
		}
		return nil
	}
	session := openSession(etc.Parameters{Temperature: new(0.0)})
	ask(session, "What is the capital of Spain?")
	if err := session.Save(file); err != nil {
		log.Fatal(err)
	}
	session.Close()

	session = openSession(etc.Parameters{Temperature: new(0.0)})
	defer session.Close()
	if err := session.Load(file); err != nil {
		log.Fatal(err)
	}
	end := ask(session, "What is the capital of Japan?")
	fmt.Println(end.CachedTokens > 0)
	// Output:
	// The capital of Spain is Madrid.
	// The capital of Japan is Tokyo.
	// true
}

// Logits tell what the program would say after a text that it is made to say: a name that begins with P.
func ExampleSession_GenerateTokens() {
	best := 0
	session, err := etc.OpenSession(program(), etc.Options{Device: "cpu"}, etc.Parameters{
		Logits: func(logits []float32) error {
			best = 0
			for id, v := range logits {
				if v > logits[best] {
					best = id
				}
			}
			return nil
		}})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	prompt, err := session.Prompt(question("What is the capital of France?"))
	if err != nil {
		log.Fatal(err)
	}
	forced := session.Tokenizer().Encode("The capital of France is", etc.EncodeOptions{})
	p := session.Parameters()
	p.ForceTokens = forced
	if err := session.SetParameters(p); err != nil {
		log.Fatal(err)
	}
	for _, err := range session.GenerateTokens(context.Background(), prompt...) {
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("%q\n", session.Tokenizer().Decode([]int{best}))
	// Output: " P"
}

// Parameters are the file's where nothing else is said, and can be changed between answers.
func ExampleSession_Parameters() {
	session := openSession(etc.Parameters{Seed: new(int64(7))})
	defer session.Close()
	if err := session.Reset(""); err != nil { // compiles it for a conversation
		log.Fatal(err)
	}
	p := session.Parameters()
	fmt.Println(*p.Temperature, *p.TopK, *p.TopP, *p.Seed)
	p.MaxTokens = 2
	if err := session.SetParameters(p); err != nil {
		log.Fatal(err)
	}
	for token, err := range session.Ask(context.Background(), "What is the capital of France?") {
		if err != nil {
			log.Fatal(err)
		}
		if token.End != nil {
			fmt.Printf("%q %s\n", token.End.Text, token.End.Reason)
		}
	}
	// Output:
	// 0.7 20 0.9 7
	// "The capital" length
}

// A template by itself, as text.
func ExampleLoadChatTemplate() {
	t, err := etc.LoadChatTemplate(program(), "")
	if err != nil {
		log.Fatal(err)
	}
	text, err := t.Render(question("Hi"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", text)
	// Output: "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
}

// A long text is encoded as it comes.
func ExampleTokenizer_EncodeReader() {
	t, err := etc.LoadTokenizer(program()) // a program holds its tokenizer
	if err != nil {
		log.Fatal(err)
	}
	tokens := 0
	err = t.EncodeReader(strings.NewReader(strings.Repeat("The capital of France. ", 1000)), etc.EncodeOptions{},
		func(ids []int) error {
			tokens += len(ids)
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tokens)
	// Output: 7001
}
