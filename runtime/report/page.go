package report

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
)

// page is what page.html shows.
type page struct {
	Title    string
	Subtitle string
	Facts    []fact
	Sections []section
	Data     template.JS // JSON of all numbers; json.Marshal escapes what could end the script element
}

type fact struct{ Name, Value string }

// section is a chart or a table with its heading.
type section struct {
	Title  string
	Note   string
	Charts []chart
	Table  *table
	Text   string // preformatted
}

type chart struct {
	Caption string
	SVG     template.HTML // made here, text escaped by whoever makes it
}

type table struct {
	Head []string
	Rows [][]string
}

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

func (p *page) write(w io.Writer, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	p.Data = template.JS(b)
	return pageTemplate.Execute(w, p)
}
