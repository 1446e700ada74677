package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// made are results of two models in which each method is better than the one before.
func made() (all []result) {
	for _, model := range []string{"a", "b"} {
		for i, s := range settings() {
			all = append(all, result{Commit: "c", Model: model, Form: s.Form, Group: s.Group, Method: s.Method,
				Bits: 4.5 + float64(i%4), KL: 1 / float64(10+i),
				Perplexity: 9, Reference: 8, Bytes: 1000, Seconds: 1.5, Memory: 64 << 20})
		}
	}
	return all
}

// TestSettings has flags for each setting, and no setting twice.
func TestSettings(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings() {
		require.False(t, seen[s.name()], s.name())
		seen[s.name()] = true
		require.Contains(t, s.flags, s.Method)
	}
	require.True(t, seen["4w/64 minmax"])
}

// TestTable tells each result once, beside plain 4 bits of the same model.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	all := made()
	writeTable(&b, all)
	require.Equal(t, len(all), strings.Count(b.String(), "| 64 |\n"))
	require.Equal(t, 2, strings.Count(b.String(), "| 4w | 64 | minmax | 7.50 | 0.07692 | 1.00 |"))
}

// TestReadTable reads the tables that are printed, and draws the same picture of them.
func TestReadTable(t *testing.T) {
	var b bytes.Buffer
	writeTable(&b, made())
	read, err := readTable(strings.NewReader("# Head\n\n| form | of another table |\n| --- |\n| 1 |\n\n" + b.String()))
	require.NoError(t, err)
	require.Len(t, read, len(made()))
	for i, r := range made() {
		r.Commit, r.Reference = "", 0
		require.InDelta(t, r.KL, read[i].KL, 1e-5)
		read[i].KL = r.KL
		require.Equal(t, r, read[i])
	}
	_, err = readTable(strings.NewReader("a\n\n" + tableHead + "\n| 4w | 64 | best |\n"))
	require.ErrorContains(t, err, "line 4: 3 columns")
}

// TestPictureOfDocuments holds the picture of the documents to the tables there.
func TestPictureOfDocuments(t *testing.T) {
	f, err := os.Open("../../docs/notes/measured-quantization.md")
	require.NoError(t, err)
	defer f.Close()
	results, err := readTable(f)
	require.NoError(t, err)
	require.Len(t, models(results), 2)
	require.Len(t, results, 2*len(settings()))
	want, err := os.ReadFile("../../docs/quality.svg")
	require.NoError(t, err)
	points := regexp.MustCompile("<title>.*?</title>") // places have a last digit that may depend on the processor
	require.Equal(t, points.FindAllString(string(drawPicture(results)), -1), points.FindAllString(string(want), -1),
		"go run ./internal/benchquality -from docs/notes/measured-quantization.md -picture docs/quality.svg")
}

// TestBits counts what is quantized alone.
func TestBits(t *testing.T) {
	var x inspected
	x.Methods = make([]struct {
		Graph struct {
			Storage []struct {
				Format         string
				Elements, Size int64
			}
		}
	}, 1)
	for _, s := range []struct {
		format         string
		elements, size int64
	}{{"affine 4-bit g64", 640, 360}, {"mxfp4 4-bit g32", 320, 170}, {"bf16", 1000, 2000}} {
		x.Methods[0].Graph.Storage = append(x.Methods[0].Graph.Storage, struct {
			Format         string
			Elements, Size int64
		}{s.format, s.elements, s.size})
	}
	require.InDelta(t, 8*530/960.0, x.bits(), 1e-9)
}

// TestFrontier leaves out what another of as few bits is better than.
func TestFrontier(t *testing.T) {
	front := frontier([]result{{Bits: 5, KL: 0.3}, {Bits: 4, KL: 0.5}, {Bits: 4.5, KL: 0.6}, {Bits: 6, KL: 0.3},
		{Bits: 4, KL: 0.4}, {Bits: 8, KL: 0.1}})
	require.Equal(t, []result{{Bits: 4, KL: 0.4}, {Bits: 5, KL: 0.3}, {Bits: 8, KL: 0.1}}, front)
}

// TestPicture is XML in which every result of few bits has a mark, within its panel, and which asks for nothing
// outside.
func TestPicture(t *testing.T) {
	all := made()
	picture := drawPicture(all)
	all = slices.DeleteFunc(all, func(r result) bool { return r.Bits > drawnBits })
	require.NotEmpty(t, all)
	marked := 0
	d := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "title" {
			marked++
		}
	}
	require.Equal(t, len(all), marked)
	axes := newAxes(all)
	for _, r := range all {
		x, y := axes.at(r)
		require.True(t, 0 <= x && x <= panelWidth && 0 <= y && y <= panelHeight, "%v", r)
	}
	require.NotContains(t, string(picture), "href")
}
