package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// schemes gives the variables of page.css in the light and in the dark scheme.
func schemes(t *testing.T) map[string]map[string]string {
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(pageStyle, -1)
	require.Len(t, blocks, 2)
	require.Regexp(t, `(?s)prefers-color-scheme: dark\) \{\s*:root`, pageStyle)
	out := map[string]map[string]string{}
	for i, name := range []string{"light", "dark"} {
		out[name] = map[string]string{}
		for _, v := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6,8});`).FindAllStringSubmatch(blocks[i][1],
			-1) {
			out[name][v[1]] = v[2]
		}
	}
	return out
}

// Every colour that a rule uses is a variable that both schemes have.
func TestStyleHasBothSchemes(t *testing.T) {
	vars := schemes(t)
	names := func(m map[string]string) []string {
		var out []string
		for n := range m {
			out = append(out, n)
		}
		slices.Sort(out)
		return out
	}
	require.Equal(t, names(vars["light"]), names(vars["dark"]))
	rules := pageStyle[strings.Index(pageStyle, "* { box-sizing"):]
	require.NotRegexp(t, `#[0-9a-f]{3,8}\b|rgba?\(`, rules, "a colour that is the same in both schemes")
	for _, used := range regexp.MustCompile(`var\(--([a-z0-9-]+)\)`).FindAllStringSubmatch(rules, -1) {
		if !slices.Contains([]string{"c", "dot", "y", "lanes"}, used[1]) { // set by a rule or an element
			require.Contains(t, vars["light"], used[1])
		}
	}
	require.Contains(t, pageSource, `<meta name="color-scheme" content="light dark">`)
}

// A page has one typeface, and may load and run nothing.
func TestPageHasOneTypeface(t *testing.T) {
	require.Equal(t, 1, strings.Count(pageStyle, "system-ui, sans-serif"))
	require.NotRegexp(t, `font-family|monospace|@import|@font-face|url\(`, pageStyle+pageSource)
	require.Contains(t, pageSource, `content="default-src 'none'; style-src 'unsafe-inline'"`)
	require.Len(t, regexp.MustCompile(`<script`).FindAllString(pageSource, -1), 1)
	require.Regexp(t, `@media \(max-width: \d+px\)`, pageStyle, "a narrow page is laid out in another way")
}

// The measures that decide what text fits into a box are those of the style.
func TestTileMeasuresAreTheStyle(t *testing.T) {
	require.Contains(t, pageStyle, fmt.Sprintf("font-size: 12px; line-height: %gpx", lineHeight))
	require.Contains(t, pageStyle, fmt.Sprintf(".steps li { height: %dpx; line-height: %dpx;", rowHeight, rowHeight))
	require.Contains(t, pageStyle, fmt.Sprintf("padding: 0 %gpx; } .tile :first-child { padding-top: 2px; }",
		paddingWidth/2))
}

// Colours stay apart for readers of every kind of colour vision, and text on them can be read.
func TestColoursStayApart(t *testing.T) {
	for scheme, vars := range schemes(t) {
		for _, pair := range []struct {
			text, on string
			least    float64 // contrast of WCAG 2.2: 4.5 for text, 3 for what is drawn
		}{{"ink", "page", 7}, {"soft", "page", 4.5}, {"accent", "page", 3}, {"alert", "page", 3}, {"wire", "page", 3}} {
			require.GreaterOrEqual(t, contrast(vars[pair.text], vars[pair.on]), pair.least, "%s: %s on %s",
				scheme, pair.text, pair.on)
		}
		var fills []string
		for i := range colours + 1 {
			name := fmt.Sprintf("k%d", i)
			require.GreaterOrEqual(t, contrast(vars["tile-ink"], vars[name]), 4.5, "%s: text on %s", scheme, name)
			fills = append(fills, vars[name])
		}
		for vision, m := range visions {
			apart := func(a, b string) float64 { return distance(oklab(m.apply(linear(a))), oklab(m.apply(linear(b)))) }
			for i, a := range fills {
				for j, b := range fills[:i] {
					require.GreaterOrEqual(t, apart(a, b), 0.07, "%s, %s: k%d and k%d", scheme, vision, i, j)
				}
			}
			require.GreaterOrEqual(t, apart(vars["accent"], vars["alert"]), 0.1, "%s, %s: marks on a curve", scheme,
				vision)
		}
	}
	require.Less(t, distance(oklab(visions["deuteranopia"].apply(linear("#c04040"))),
		oklab(visions["deuteranopia"].apply(linear("#707000")))),
		0.07, "the measure tells what a reader cannot")
}

type matrix [3][3]float64

func (m matrix) apply(v [3]float64) (out [3]float64) {
	for i, row := range m {
		out[i] = min(max(row[0]*v[0]+row[1]*v[1]+row[2]*v[2], 0), 1)
	}
	return out
}

// visions simulate colour vision on linear RGB (Machado, Oliveira, Fernandes, 2009, full severity).
var visions = map[string]matrix{
	"usual":        {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// linear is a colour of CSS as linear RGB.
func linear(hex string) (out [3]float64) {
	var c [3]int
	if _, err := fmt.Sscanf(hex[:7], "#%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
		panic(hex)
	}
	for i, v := range c {
		if x := float64(v) / 255; x <= 0.04045 {
			out[i] = x / 12.92
		} else {
			out[i] = math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	return out
}

// oklab is a colour in Oklab (Ottosson, 2020), where distances are about what eyes see.
func oklab(c [3]float64) [3]float64 {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return [3]float64{0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// contrast is the contrast ratio of two colours as WCAG 2.2 defines it.
func contrast(a, b string) float64 {
	light := func(hex string) float64 {
		c := linear(hex)
		return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05
	}
	x, y := light(a), light(b)
	return max(x, y) / min(x, y)
}
