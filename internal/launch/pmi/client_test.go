package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// launcher is a small PMI server.
type launcher struct {
	size   int
	speaks []Version // that it agrees to; the first is what it names otherwise
	lies   func(rank int, answer *message)

	mu      sync.Mutex
	keys    map[string]string
	waiting int
	open    chan struct{} // closed at the next fence
}

func newLauncher(size int, speaks ...Version) *launcher {
	return &launcher{size: size, speaks: speaks, keys: map[string]string{}, open: make(chan struct{})}
}

// connect returns a rank's connection.
func (l *launcher) connect(t *testing.T, rank int) net.Conn {
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer there.Close()
		l.serve(rank, there)
	}()
	t.Cleanup(func() {
		here.Close()
		<-done
	})
	return here
}

// serve answers one rank until that is finished or the connection ends.
func (l *launcher) serve(rank int, conn net.Conn) {
	in, version := bufio.NewReader(conn), V1
	for {
		m, err := readMessage(in, version)
		if err != nil {
			return
		}
		answer, next := l.answer(rank, &m, version)
		if l.lies != nil {
			l.lies(rank, &answer)
		}
		if answer.command == "" {
			return // it was told to die
		}
		b, err := appendMessage(nil, version, answer)
		if err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
		version = next
	}
}

// answer carries out a command, and returns the version of the next message.
func (l *launcher) answer(rank int, m *message, version Version) (answer message, next Version) {
	get := func(key string) string {
		value, _ := m.get(key)
		return value
	}
	reply := func(command string, fields ...field) (message, Version) {
		return message{command, append(fields, field{"rc", "0"})}, version
	}
	switch m.command {
	case "init":
		next, code := l.speaks[0], "-1"
		for _, v := range l.speaks {
			if get("pmi_version") == strconv.Itoa(int(v)) {
				next, code = v, "0"
			}
		}
		named := strconv.Itoa(int(next))
		if code != "0" {
			next = V1 // until both agree
		}
		return message{"response_to_init", []field{{"pmi_version", named}, {"pmi_subversion", "0"}, {"rc", code}}}, next
	case "fullinit":
		return reply("fullinit-response", field{"rank", strconv.Itoa(rank)}, field{"size", strconv.Itoa(l.size)})
	case "get_maxes":
		return reply("maxes", field{"kvsname_max", "64"}, field{"keylen_max", "32"}, field{"vallen_max", "200"})
	case "get_my_kvsname":
		return reply("my_kvsname", field{"kvsname", "kvs_7"})
	case "put", "kvs-put":
		l.mu.Lock()
		l.keys[get("kvsname")+get("key")] = get("value")
		l.mu.Unlock()
		return reply(map[string]string{"put": "put_result", "kvs-put": "kvs-put-response"}[m.command])
	case "barrier_in", "kvs-fence":
		l.fence()
		return reply(map[string]string{"barrier_in": "barrier_out", "kvs-fence": "kvs-fence-response"}[m.command])
	case "get", "kvs-get":
		l.mu.Lock()
		value, ok := l.keys[get("kvsname")+get("key")]
		l.mu.Unlock()
		switch {
		case m.command == "kvs-get" && ok:
			return reply("kvs-get-response", field{"found", "TRUE"}, field{"value", value})
		case m.command == "kvs-get":
			return reply("kvs-get-response", field{"found", "FALSE"})
		case ok:
			return reply("get_result", field{"value", value})
		}
		return message{"get_result", []field{{"rc", "-1"}, {"msg", "not_found"}}}, version
	case "finalize":
		return reply(map[Version]string{V1: "finalize_ack", V2: "finalize-response"}[version])
	}
	return message{"unknown", []field{{"rc", "-1"}, {"errmsg", "unknown_command"}}}, version
}

func (l *launcher) fence() {
	l.mu.Lock()
	open := l.open
	if l.waiting++; l.waiting == l.size {
		close(open)
		l.waiting, l.open = 0, make(chan struct{})
	}
	l.mu.Unlock()
	<-open
}

// eachVersion runs f with each version, with servers that know it alone or both, whichever
// is offered.
func eachVersion(t *testing.T, f func(t *testing.T, offer, speaks Version, l func(size int) *launcher)) {
	for _, test := range []struct {
		offer  Version
		speaks []Version
	}{{V1, []Version{V1}}, {V2, []Version{V2}}, {V2, []Version{V1}}, {V1, []Version{V2}}, {V1, []Version{V1, V2}}, {V2, []Version{V1, V2}}} {
		want := test.speaks[0]
		if len(test.speaks) > 1 {
			want = test.offer
		}
		t.Run(fmt.Sprintf("%d of %v", test.offer, test.speaks), func(t *testing.T) {
			f(t, test.offer, want, func(size int) *launcher { return newLauncher(size, test.speaks...) })
		})
	}
}

// TestRanksExchangeWords has each rank put a word, and get those of all.
func TestRanksExchangeWords(t *testing.T) {
	eachVersion(t, func(t *testing.T, offer, speaks Version, launch func(int) *launcher) {
		const size = 4
		l := launch(size)
		results := make(chan error, size)
		for rank := range size {
			conn := l.connect(t, rank)
			go func() {
				results <- func() error {
					c, err := Init(conn, offer, Identity{Rank: rank, Size: size, Job: "3.0"})
					if err != nil {
						return err
					}
					if c.Version() != speaks {
						return fmt.Errorf("version %d, want %d", c.Version(), speaks)
					}
					if err := c.Put("k"+strconv.Itoa(rank), "v="+strconv.Itoa(rank)); err != nil {
						return err
					}
					if err := c.Fence(); err != nil {
						return err
					}
					for r := range size {
						if v, err := c.Get("k" + strconv.Itoa(r)); err != nil || v != "v="+strconv.Itoa(r) {
							return fmt.Errorf("rank %d has put %q, %v", r, v, err)
						}
					}
					if v, err := c.Get("nobody"); !errors.Is(err, ErrNoKey) {
						return fmt.Errorf("a key that nobody has put: %q, %v", v, err)
					}
					return c.Finalize()
				}()
			}()
		}
		for range size {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestLongWordsAreRefused(t *testing.T) {
	for version, most := range map[Version]int{V1: 200, V2: maxValueV2} {
		c, err := Init(newLauncher(1, version).connect(t, 0), version, Identity{Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put("k", strings.Repeat("v", most)); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
		want := fmt.Sprintf("a value of %d are more than", most+1)
		if err := c.Put("k", strings.Repeat("v", most+1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %d: %v", version, err)
		}
		if err := c.Put(strings.Repeat("k", 65), ""); err == nil || !strings.Contains(err.Error(), "a key of 65 bytes") {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// TestServerThatGoesAstray has a server answer one command wrongly, or not at all.
func TestServerThatGoesAstray(t *testing.T) {
	run := func(conn io.ReadWriter, offer Version) error {
		c, err := Init(conn, offer, Identity{Rank: 0, Size: 1})
		if err != nil {
			return err
		}
		if err := c.Put("k", "v"); err != nil {
			return err
		}
		if err := c.Fence(); err != nil {
			return err
		}
		if _, err := c.Get("k"); err != nil {
			return err
		}
		return c.Finalize()
	}
	set := func(m *message, key, value string) {
		for i := range m.fields {
			if m.fields[i].key == key {
				m.fields[i].value = value
			}
		}
	}
	for _, test := range []struct {
		version Version
		command string // the answer that is tampered with
		tamper  func(m *message)
		want    string
	}{
		{V1, "response_to_init", func(m *message) { set(m, "pmi_version", "9") }, `answers with version "9" and code "0"`},
		{V1, "response_to_init", func(m *message) { set(m, "rc", "-1") }, `version "1" and code "-1"`},
		{V1, "response_to_init", func(m *message) { m.command = "hello" }, "answers init with hello instead of response_to_init"},
		{V1, "maxes", func(m *message) { set(m, "vallen_max", "many") }, `vallen_max="many", which is no number`},
		{V1, "maxes", func(m *message) { m.fields = nil }, `keylen_max=""`},
		{V1, "my_kvsname", func(m *message) { m.fields = nil }, "no place for keys"},
		{V1, "put_result", func(m *message) { m.fields = []field{{"rc", "-1"}, {"msg", "full"}} }, "PMI command put: the PMI server says full (-1)"},
		{V1, "barrier_out", func(m *message) { m.command = "" }, "closed the connection instead of answering barrier_in"},
		{V1, "get_result", func(m *message) { m.fields = []field{{"rc", "0"}} }, "no value"},
		{V1, "finalize_ack", func(m *message) { m.command = "" }, "closed the connection instead of answering finalize"},
		{V2, "fullinit-response", func(m *message) { set(m, "rank", "3") }, "the PMI server has rank 3 of 1 at this descriptor, and the environment says rank 0 of 1"},
		{V2, "fullinit-response", func(m *message) { set(m, "size", "7") }, "rank 0 of 7 at this descriptor"},
		{V2, "fullinit-response", func(m *message) { m.fields = []field{{"rc", "14"}} }, "PMI command fullinit: the PMI server returns code 14"},
		{V2, "kvs-put-response", func(m *message) { m.fields = []field{{"rc", "9"}, {"errmsg", "no"}} }, "PMI command kvs-put: the PMI server says no (9)"},
		{V2, "kvs-fence-response", func(m *message) { m.command = "" }, "closed the connection instead of answering kvs-fence"},
		{V2, "kvs-get-response", func(m *message) { set(m, "found", "FALSE") }, ErrNoKey.Error()},
	} {
		l := newLauncher(1, test.version)
		l.lies = func(_ int, m *message) {
			if m.command == test.command {
				test.tamper(m)
			}
		}
		if err := run(l.connect(t, 0), test.version); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("version %d, %s: got %v, want %q", test.version, test.command, err, test.want)
		}
	}
	for _, text := range []string{"garbage\n", "cmd=response_to_init garbage\n", "\n"} {
		here, there := net.Pipe()
		go func() {
			bufio.NewReader(there).ReadString('\n')
			io.WriteString(there, text)
			there.Close()
		}()
		if err := run(here, V1); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %v", text, err)
		}
		here.Close()
	}
}

// TestUsedUp begins PMI on a connection that the server has ended with an earlier process.
func TestUsedUp(t *testing.T) {
	for _, offer := range []Version{V1, V2} {
		here, there := net.Pipe()
		there.Close() // neither a write nor a read succeeds
		_, err := Init(here, offer, Identity{Size: 1})
		if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "an earlier process of this rank has used it up") {
			t.Errorf("version %d: %v", offer, err)
		}
		here, there = net.Pipe()
		go func() { // takes the command and does not answer
			bufio.NewReader(there).ReadString('\n')
			there.Close()
		}()
		_, err = Init(here, offer, Identity{Size: 1})
		if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "an earlier process of this rank has used it up") {
			t.Errorf("version %d: %v", offer, err)
		}
	}
}
