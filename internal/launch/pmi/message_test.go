package pmi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// read decodes the first message of text.
func read(v Version, text string) (message, error) {
	return readMessage(bufio.NewReader(strings.NewReader(text)), v)
}

// TestMessagesOnTheWire has messages as mpiexec.hydra and srun exchange them with ranks.
func TestMessagesOnTheWire(t *testing.T) {
	for _, test := range []struct {
		version Version
		text    string
		m       message
	}{
		{V1, "cmd=get_maxes\n", message{"get_maxes", nil}},
		{V1, "cmd=init pmi_version=1 pmi_subversion=1\n", message{"init", []field{{"pmi_version", "1"}, {"pmi_subversion", "1"}}}},
		{V1, "cmd=put kvsname=kvs_1_0_vm key=k value=ab@tcp:[fd77::1]:9=\n",
			message{"put", []field{{"kvsname", "kvs_1_0_vm"}, {"key", "k"}, {"value", "ab@tcp:[fd77::1]:9="}}}},
		{V1, "cmd=get_result rc=-1 msg=key_k_not_found value=unknown\n",
			message{"get_result", []field{{"rc", "-1"}, {"msg", "key_k_not_found"}, {"value", "unknown"}}}},
		{V2, "    14cmd=kvs-fence;", message{"kvs-fence", nil}},
		{V2, "    39cmd=fullinit;pmirank=0;pmijobid=;x=a b;", message{"fullinit", []field{{"pmirank", "0"}, {"pmijobid", ""}, {"x", "a b"}}}},
	} {
		got, err := read(test.version, test.text)
		if err != nil || !reflect.DeepEqual(got, test.m) {
			t.Errorf("version %d, %q: %v, %v", test.version, test.text, got, err)
		}
		text, err := appendMessage(nil, test.version, test.m)
		if err != nil || string(text) != test.text {
			t.Errorf("version %d, %v: %q, %v", test.version, test.m, text, err)
		}
	}
}

// TestServersWriteInTheirOwnWay reads what is not written here.
func TestServersWriteInTheirOwnWay(t *testing.T) {
	for _, test := range []struct {
		version Version
		text    string
		key     string
		value   string
	}{
		{V1, "cmd=x  a=1 \r\n", "a", "1"},
		{V2, "16    cmd=x;a=1;;2;b=3", "a", "1;2"},
		{V2, "000018cmd=x;a=1;;2;b=3;;", "b", "3;"},
		{V2, "    11cmd=x;a=1;;", "a", "1;"},
	} {
		m, err := read(test.version, test.text)
		if got, _ := m.get(test.key); err != nil || got != test.value {
			t.Errorf("version %d, %q: %v, %v", test.version, test.text, m, err)
		}
	}
}

func TestMalformedMessagesAreNamed(t *testing.T) {
	for _, test := range []struct {
		version Version
		text    string
		want    error
		says    string
	}{
		{V1, "\n", errMalformed, "no command"},
		{V1, "hello\n", errMalformed, `"hello" is not key=value`},
		{V1, "cmd=x not found\n", errMalformed, `"not" is not key=value`},
		{V1, "rc=0 cmd=x\n", errMalformed, "does not begin with cmd="},
		{V1, "cmd=\n", errMalformed, "no command"},
		{V1, strings.Repeat("x", maxMessage+1), errMalformed, "a line of more than"},
		{V1, "cmd=x", io.ErrUnexpectedEOF, ""},
		{V1, "", io.EOF, ""},
		{V2, "cmd=xy", errMalformed, `"cmd=xy" is not a length`},
		{V2, "     0", errMalformed, "is not a length"},
		{V2, "    -5", errMalformed, "is not a length"},
		{V2, "999999", errMalformed, "is not a length"},
		{V2, "     4cmd=", errMalformed, "no command"},
		{V2, "     3;;;", errMalformed, "is not key=value"},
		{V2, "    20cmd=x;", io.ErrUnexpectedEOF, ""},
		{V2, "   ", io.ErrUnexpectedEOF, ""},
	} {
		if m, err := read(test.version, test.text); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("version %d, %q: %v, %v", test.version, short(test.text), m, err)
		}
	}
}

// TestUnspeakableWordsAreRefused encodes what would be read as something else.
func TestUnspeakableWordsAreRefused(t *testing.T) {
	for _, test := range []struct {
		version Version
		field   field
	}{
		{V1, field{"k", "a b"}}, {V1, field{"k", "a\nb"}}, {V1, field{"a=b", "c"}}, {V1, field{"", "c"}},
		{V2, field{"k", "a;b"}}, {V2, field{"k;", "b"}}, {V2, field{"a=b", "c"}},
		{V1, field{"k", strings.Repeat("v", maxMessage)}}, {V2, field{"k", strings.Repeat("v", maxMessage)}},
	} {
		if text, err := appendMessage(nil, test.version, message{"put", []field{test.field}}); err == nil {
			t.Errorf("version %d, %q=%q: %q", test.version, test.field.key, short(test.field.value), short(string(text)))
		}
	}
}

// FuzzMessage reads anything, and reads back what it can write of that.
//
//fuzz:inputs 45000
func FuzzMessage(f *testing.F) {
	for _, text := range []string{"cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=x  a=1 \r\n", "cmd=x not\n"} {
		f.Add([]byte(text), false)
	}
	for _, text := range []string{"    14cmd=kvs-fence;", "16    cmd=x;a=1;;2;b=3", "     3;;;", "999999x"} {
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, second bool) {
		v := V1
		if second {
			v = V2
		}
		m, err := readMessage(bufio.NewReader(bytes.NewReader(text)), v)
		if err != nil {
			return
		}
		again, err := appendMessage(nil, v, m)
		if err != nil {
			return // a value with a semicolon
		}
		if got, err := read(v, string(again)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%q is read as %v, written as %q and read as %v, %v", text, m, again, got, err)
		}
	})
}
