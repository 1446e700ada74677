package report

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
)

// page is the data of page.html.
type page struct {
	Title    string
	Subtitle string
	Facts    []fact
	Sections []section
	Style    template.CSS // page.css
	Data     template.JS  // JSON of all numbers; json.Marshal escapes what could end the script element
}

type fact = Figure

// Figure is a number with its name, at the head of a page.
type Figure struct{ Name, Value string }

// section is a heading with what stands under it, in the order of the fields; empty ones are left out.
type section struct {
	Title    string
	Note     string
	MarkNote string // what the marked points of the charts are
	Map      *treemap
	Charts   []chart
	Weights  *weightRows
	Bits     *bitRows
	Flows    *flows
	Table    *table
}

// table has a heading for each row in its first column. With a summary, it is folded under that line; a narrow page
// leaves the last column out where Trim says so.
type table struct {
	Summary string
	Trim    bool
	Head    []string
	Rows    [][]string
}

// key is an entry of a legend: a class of colour and what it stands for.
type key struct{ Class, Name, Size, Share string }

//go:embed page.html
var pageSource string

//go:embed page.css
var pageStyle string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"breaks": breaks}).Parse(pageSource))

func (p *page) write(w io.Writer, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	p.Style, p.Data = template.CSS(pageStyle), template.JS(b)
	return pageTemplate.Execute(w, p)
}

// breaks splits a name after its dots, where a line may break.
func breaks(name string) []string { return strings.SplitAfter(name, ".") }

func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
