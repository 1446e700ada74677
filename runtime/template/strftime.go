package template

import (
	"fmt"
	"strings"
	"time"
)

// strftime is datetime.strftime for a time without zone, as glibc formats it in the C locale: with the flags
// - _ 0 ^ # and a width.
func (in *interp) strftime(t time.Time, format string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			in.alloc(len(format))
			b.WriteString(format)
			return b.String()
		}
		in.alloc(i)
		b.WriteString(format[:i])
		text, n := in.timeDirective(t, format[i:])
		in.alloc(len(text))
		b.WriteString(text)
		format = format[i+n:]
	}
}

// timeDirective formats the directive at the start of s, and gives its length. What is no directive stays.
func (in *interp) timeDirective(t time.Time, s string) (text string, n int) {
	n = 1
	flag := byte(0)
	upper, swap := false, false
	for ; n < len(s) && strings.IndexByte("-_0^#", s[n]) >= 0; n++ {
		switch s[n] {
		case '^':
			upper = true
		case '#':
			swap = true
		default:
			flag = s[n]
		}
	}
	width := 0
	for ; n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
		width = min(width*10+int(s[n]-'0'), 1<<30)
	}
	if n < len(s) && (s[n] == 'E' || s[n] == 'O') {
		n++
	}
	if n == len(s) {
		return s, n
	}
	f, ok := timeField(t, s[n])
	n++
	if !ok {
		return s[:n], n
	}
	if f.number {
		pad := f.pad
		switch flag {
		case '-':
			pad, f.width = 0, 0
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		if width == 0 {
			width = f.width
		}
		digits := fmt.Sprint(f.value)
		if pad != 0 {
			digits = in.repeatString(string(pad), width-len(digits)) + digits
		}
		return digits, n
	}
	text = f.text
	switch {
	case upper, swap && f.swapUpper:
		text = strings.ToUpper(text)
	case swap && f.swapLower:
		text = strings.ToLower(text)
	}
	if width > len(text) {
		pad := " "
		if flag == '0' {
			pad = "0"
		}
		text = in.repeatString(pad, width-len(text)) + text
	}
	return text, n
}

// timeValue is what a directive stands for: a number with its padding, or a text.
type timeValue struct {
	number    bool
	value     int
	width     int
	pad       byte
	text      string
	swapUpper bool // the flag # makes it upper case
	swapLower bool // the flag # makes it lower case
}

func timeField(t time.Time, directive byte) (timeValue, bool) {
	number := func(v, width int) (timeValue, bool) {
		return timeValue{number: true, value: v, width: width, pad: '0'}, true
	}
	blank := func(v int) (timeValue, bool) {
		return timeValue{number: true, value: v, width: 2, pad: ' '}, true
	}
	layout := func(l string) (timeValue, bool) { return timeValue{text: t.Format(l)}, true }
	name := func(l string) (timeValue, bool) { return timeValue{text: t.Format(l), swapUpper: true}, true }
	hour12 := (t.Hour()+11)%12 + 1
	weekday := int(t.Weekday())
	isoYear, isoWeek := t.ISOWeek()
	switch directive {
	case 'a':
		return name("Mon")
	case 'A':
		return name("Monday")
	case 'b', 'h':
		return name("Jan")
	case 'B':
		return name("January")
	case 'c':
		return layout("Mon Jan _2 15:04:05 2006")
	case 'C':
		return number(t.Year()/100, 2)
	case 'd':
		return number(t.Day(), 2)
	case 'D', 'x':
		return layout("01/02/06")
	case 'e':
		return blank(t.Day())
	case 'f':
		return number(t.Nanosecond()/1000, 6)
	case 'F':
		return layout("2006-01-02")
	case 'g':
		return number(isoYear%100, 2)
	case 'G':
		return number(isoYear, 0)
	case 'H':
		return number(t.Hour(), 2)
	case 'I':
		return number(hour12, 2)
	case 'j':
		return number(t.YearDay(), 3)
	case 'k':
		return blank(t.Hour())
	case 'l':
		return blank(hour12)
	case 'm':
		return number(int(t.Month()), 2)
	case 'M':
		return number(t.Minute(), 2)
	case 'n':
		return timeValue{text: "\n"}, true
	case 'p':
		return timeValue{text: t.Format("PM"), swapLower: true}, true
	case 'P':
		return timeValue{text: t.Format("pm")}, true
	case 'r':
		return layout("03:04:05 PM")
	case 'R':
		return layout("15:04")
	case 's':
		return number(int(t.Unix()), 0)
	case 'S':
		return number(t.Second(), 2)
	case 't':
		return timeValue{text: "\t"}, true
	case 'T', 'X':
		return layout("15:04:05")
	case 'u':
		return number((weekday+6)%7+1, 1)
	case 'U':
		return number((t.YearDay()+6-weekday)/7, 2)
	case 'V':
		return number(isoWeek, 2)
	case 'w':
		return number(weekday, 1)
	case 'W':
		return number((t.YearDay()+6-(weekday+6)%7)/7, 2)
	case 'y':
		return number(t.Year()%100, 2)
	case 'Y':
		return number(t.Year(), 0)
	case 'z', 'Z': // a datetime without zone has neither
		return timeValue{}, true
	case '%':
		return timeValue{text: "%"}, true
	}
	return timeValue{}, false
}
