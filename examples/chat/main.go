package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/etc-ml/etc"
)

func main() {
	model, err := etc.Open(os.Args[1], etc.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	question := []etc.Message{{Role: "user", Content: os.Args[2]}}
	for token, err := range model.Chat(context.Background(), question, etc.Parameters{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
}
