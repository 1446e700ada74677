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

// timeDirective formats the directive at the start of s, and gives its length. What is no directive stays. It is long
// because flags, width and padding act on each other.
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

// timeValue is the value of a directive: a number with its padding, or a text.
type timeValue struct {
	number    bool
	value     int
	width     int
	pad       byte
	text      string
	swapUpper bool // the flag # makes it upper case
	swapLower bool // the flag # makes it lower case
}

// timeField returns the value of a directive, or false where there is no such directive.
func timeField(t time.Time, directive byte) (timeValue, bool) {
	switch directive {
	case 'c':
		return timeText(t, "Mon Jan _2 15:04:05 2006"), true
	case 'n':
		return timeValue{text: "\n"}, true
	case 's':
		return timeNumber(int(t.Unix()), 0), true
	case 't':
		return timeValue{text: "\t"}, true
	case 'z', 'Z': // a datetime without zone has neither
		return timeValue{}, true
	case '%':
		return timeValue{text: "%"}, true
	}
	if v, ok := dateField(t, directive); ok {
		return v, true
	}
	return clockField(t, directive)
}

func timeNumber(v, width int) timeValue {
	return timeValue{number: true, value: v, width: width, pad: '0'}
}

func timeBlank(v int) timeValue { return timeValue{number: true, value: v, width: 2, pad: ' '} }

func timeText(t time.Time, layout string) timeValue { return timeValue{text: t.Format(layout)} }

func timeName(t time.Time, layout string) timeValue {
	return timeValue{text: t.Format(layout), swapUpper: true}
}

// dateField returns the value of a directive about a day.
func dateField(t time.Time, directive byte) (timeValue, bool) {
	weekday := int(t.Weekday())
	isoYear, isoWeek := t.ISOWeek()
	switch directive {
	case 'a':
		return timeName(t, "Mon"), true
	case 'A':
		return timeName(t, "Monday"), true
	case 'b', 'h':
		return timeName(t, "Jan"), true
	case 'B':
		return timeName(t, "January"), true
	case 'C':
		return timeNumber(t.Year()/100, 2), true
	case 'd':
		return timeNumber(t.Day(), 2), true
	case 'D', 'x':
		return timeText(t, "01/02/06"), true
	case 'e':
		return timeBlank(t.Day()), true
	case 'F':
		return timeText(t, "2006-01-02"), true
	case 'g':
		return timeNumber(isoYear%100, 2), true
	case 'G':
		return timeNumber(isoYear, 0), true
	case 'j':
		return timeNumber(t.YearDay(), 3), true
	case 'm':
		return timeNumber(int(t.Month()), 2), true
	case 'u':
		return timeNumber((weekday+6)%7+1, 1), true
	case 'U':
		return timeNumber((t.YearDay()+6-weekday)/7, 2), true
	case 'V':
		return timeNumber(isoWeek, 2), true
	case 'w':
		return timeNumber(weekday, 1), true
	case 'W':
		return timeNumber((t.YearDay()+6-(weekday+6)%7)/7, 2), true
	case 'y':
		return timeNumber(t.Year()%100, 2), true
	case 'Y':
		return timeNumber(t.Year(), 0), true
	}
	return timeValue{}, false
}

// clockField returns the value of a directive about a time of day.
func clockField(t time.Time, directive byte) (timeValue, bool) {
	hour12 := (t.Hour()+11)%12 + 1
	switch directive {
	case 'f':
		return timeNumber(t.Nanosecond()/1000, 6), true
	case 'H':
		return timeNumber(t.Hour(), 2), true
	case 'I':
		return timeNumber(hour12, 2), true
	case 'k':
		return timeBlank(t.Hour()), true
	case 'l':
		return timeBlank(hour12), true
	case 'M':
		return timeNumber(t.Minute(), 2), true
	case 'p':
		return timeValue{text: t.Format("PM"), swapLower: true}, true
	case 'P':
		return timeText(t, "pm"), true
	case 'r':
		return timeText(t, "03:04:05 PM"), true
	case 'R':
		return timeText(t, "15:04"), true
	case 'S':
		return timeNumber(t.Second(), 2), true
	case 'T', 'X':
		return timeText(t, "15:04:05"), true
	}
	return timeValue{}, false
}
