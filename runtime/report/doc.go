// Package report draws what people would rather look at than read: one HTML page of a program's file, memory and layers
// ([Inspection]) or of its distance from its checkpoint ([Comparison]). docs/notes/pictures.md says what each picture
// shows.
//
// A page is one file. It loads nothing and runs nothing, which its Content-Security-Policy makes sure of, since names
// in it come from files that nobody vouches for; html/template escapes them. Colours are variables of page.css in a
// light and a dark scheme. Text is HTML, not SVG, so that it keeps its size on a narrow page: a chart's SVG is its
// curves in a square that the page stretches. What says nothing is not drawn: a sentence or a table stands for a chart
// of zeros or of one point. Every number that is drawn is in the page's data block as well, as JSON.
//
// Package report imports ir, runtime/inspect and runtime/compare and must never import an engine.
package report
