// Package report draws what people would rather look at than read: one HTML page, with no network and no
// script, of a program's file, memory and graph ([Inspection]) or of its distance from its checkpoint
// ([Comparison]). Charts are SVG; every number that is drawn is in the page's data block as well, as JSON.
//
// Package report imports ir, runtime/inspect and runtime/compare and must never import an engine.
package report
