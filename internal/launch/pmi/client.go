// Package pmi speaks PMI, the process management interface by which launchers such as
// mpiexec.hydra and srun let the ranks of a job exchange a few words: each rank puts keys
// with values, all meet at a fence, and then each gets what the others have put. The
// launcher serves it at a descriptor that a rank inherits. The package knows both
// versions, 1.1 and 2.0, and no descriptors: it speaks over any connection.
package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// ErrNoKey is wrapped by the error of a Get of a key that nobody has put.
var ErrNoKey = errors.New("nobody has put this key")

// Identity is a rank's part in a job, as its launcher's variables tell it.
type Identity struct {
	Rank, Size int
	Job        string // PMI_JOBID; often empty
}

// Client is one rank's end of PMI. Its methods block until the server has answered, and
// are called by one goroutine at a time. A failure is final.
type Client struct {
	conn    io.ReadWriter
	in      *bufio.Reader
	version Version
	space   string // where keys live, in V1

	maxKey, maxValue int // longest, in bytes
}

// The longest key and value in V2, which has no way to ask for them.
const (
	maxKeyV2   = 64
	maxValueV2 = 1024
)

// Init begins PMI over conn. It offers a version and goes on with the one that the server
// answers with: a server may know only one of them. It serves one process of each rank.
func Init(conn io.ReadWriter, offer Version, id Identity) (*Client, error) {
	c := &Client{conn: conn, in: bufio.NewReader(conn), version: V1} // the first message is one of V1 in any case
	version, err := c.greet(offer)
	if err != nil {
		return nil, err
	}
	if version == V2 {
		c.version = V2
		return c, c.initV2(id)
	}
	return c, c.initV1()
}

// greet agrees on a version. A server that refuses the offer names its own.
func (c *Client) greet(offer Version) (Version, error) {
	for tries := 0; ; tries++ {
		answer, err := c.ask("init", "response_to_init",
			field{"pmi_version", strconv.Itoa(int(offer))}, field{"pmi_subversion", strconv.Itoa(int(2 - offer))})
		if err != nil && tries == 0 && !errors.Is(err, errMalformed) && !errors.Is(err, fs.ErrClosed) {
			err = fmt.Errorf("PMI has ended before this process used it: a launcher serves one process of each rank, and perhaps "+
				"an earlier process of this rank has used it up, as in a script that runs programs one after the other; "+
				"start each program with a launcher of its own: %w", err)
		}
		if err != nil {
			return 0, err
		}
		text, _ := answer.get("pmi_version")
		version := map[string]Version{"1": V1, "2": V2}[text]
		code, _ := answer.get("rc")
		switch {
		case version != 0 && code == "0":
			return version, nil
		case version == 0 || version == offer || tries > 0:
			return 0, fmt.Errorf("the PMI server was offered version %d and answers with version %q and code %q: it has to speak 1 or 2", offer, text, code)
		}
		offer = version
	}
}

func (c *Client) initV1() error {
	limits, err := c.call("get_maxes", "maxes")
	if err != nil {
		return err
	}
	if c.maxKey, err = number(limits, "keylen_max"); err != nil {
		return err
	}
	if c.maxValue, err = number(limits, "vallen_max"); err != nil {
		return err
	}
	space, err := c.call("get_my_kvsname", "my_kvsname")
	if err != nil {
		return err
	}
	if c.space, _ = space.get("kvsname"); c.space == "" {
		return fmt.Errorf("the PMI server names no place for keys: %w", errMalformed)
	}
	return nil
}

func (c *Client) initV2(id Identity) error {
	c.maxKey, c.maxValue = maxKeyV2, maxValueV2
	full, err := c.call("fullinit", "fullinit-response",
		field{"pmijobid", id.Job}, field{"pmirank", strconv.Itoa(id.Rank)}, field{"threaded", "FALSE"})
	if err != nil {
		return err
	}
	rank, err := number(full, "rank")
	if err != nil {
		return err
	}
	size, err := number(full, "size")
	if err != nil {
		return err
	}
	if rank != id.Rank || size != id.Size {
		return fmt.Errorf("the PMI server has rank %d of %d at this descriptor, and the environment says rank %d of %d: "+
			"each rank needs the variables and the descriptor that the launcher gave to it", rank, size, id.Rank, id.Size)
	}
	return nil
}

// Version returns the version that the server speaks.
func (c *Client) Version() Version { return c.version }

// Put sets a key to a value. Others see it after the next fence.
func (c *Client) Put(key, value string) error {
	if len(key) > c.maxKey || len(value) > c.maxValue {
		return fmt.Errorf("a key of %d bytes and a value of %d are more than the %d and %d that the PMI server takes",
			len(key), len(value), c.maxKey, c.maxValue)
	}
	var err error
	if c.version == V2 {
		_, err = c.call("kvs-put", "kvs-put-response", field{"key", key}, field{"value", value})
	} else {
		_, err = c.call("put", "put_result", field{"kvsname", c.space}, field{"key", key}, field{"value", value})
	}
	return err
}

// Fence waits until all ranks have called it.
func (c *Client) Fence() error {
	var err error
	if c.version == V2 {
		_, err = c.call("kvs-fence", "kvs-fence-response")
	} else {
		_, err = c.call("barrier_in", "barrier_out")
	}
	return err
}

// Get returns the value that a rank has put before the last fence.
func (c *Client) Get(key string) (string, error) {
	command, answers, fields := "get", "get_result", []field{{"kvsname", c.space}, {"key", key}}
	if c.version == V2 {
		command, answers, fields = "kvs-get", "kvs-get-response", []field{{"key", key}}
	}
	answer, err := c.ask(command, answers, fields...)
	if err != nil {
		return "", err
	}
	if found, said := answer.get("found"); said && found != "TRUE" {
		return "", fmt.Errorf("%s: %w", key, ErrNoKey)
	}
	if err := failure(answer); err != nil {
		return "", fmt.Errorf("%s: %w: %w", key, ErrNoKey, err) // version 1.1 tells it in no other way
	}
	value, ok := answer.get("value")
	if !ok {
		return "", fmt.Errorf("the PMI server's answer has no value: %w", errMalformed)
	}
	return value, nil
}

// Finalize ends PMI. After it the launcher takes an end of the process for an orderly one,
// if its exit status is 0.
func (c *Client) Finalize() error {
	answers := "finalize_ack"
	if c.version == V2 {
		answers = "finalize-response"
	}
	_, err := c.call("finalize", answers)
	return err
}

// Abort has the launcher end the job, this process with it, and say why. It does not wait for
// that: there is no answer.
func (c *Client) Abort(why string) error {
	m := message{"abort", []field{{"exitcode", "1"}}}
	if c.version == V2 {
		m.fields = []field{{"isworld", "TRUE"}, {"msg", strings.NewReplacer(";", ",", "\x00", "").Replace(why)}}
	}
	b, err := appendMessage(nil, c.version, m)
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err != nil {
		return fmt.Errorf("PMI command abort: %w", err)
	}
	return nil
}

// call sends a command and returns the answer. It is an error if the server says that
// the command has failed.
func (c *Client) call(command, answers string, fields ...field) (message, error) {
	answer, err := c.ask(command, answers, fields...)
	if err == nil {
		err = failure(answer)
	}
	if err != nil {
		return message{}, fmt.Errorf("PMI command %s: %w", command, err)
	}
	return answer, nil
}

// ask sends a command and returns the answer, whether the command has failed or not.
func (c *Client) ask(command, answers string, fields ...field) (message, error) {
	b, err := appendMessage(nil, c.version, message{command, fields})
	if err != nil {
		return message{}, err
	}
	if _, err := c.conn.Write(b); err != nil {
		return message{}, fmt.Errorf("the launcher's PMI server takes no command %s: %w", command, err)
	}
	answer, err := readMessage(c.in, c.version)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return message{}, fmt.Errorf("the launcher's PMI server closed the connection instead of answering %s: %w", command, err)
	case err != nil:
		return message{}, fmt.Errorf("the launcher's PMI server was asked for %s: %w", command, err)
	case answer.command != answers:
		return message{}, fmt.Errorf("the launcher's PMI server answers %s with %s instead of %s: %w", command, answer.command, answers, errMalformed)
	}
	return answer, nil
}

// failure returns what an answer says has gone wrong, or nil. An answer without a return
// code is a success.
func failure(m message) error {
	code, ok := m.get("rc")
	if !ok || code == "0" {
		return nil
	}
	for _, key := range []string{"errmsg", "msg"} {
		if text, ok := m.get(key); ok {
			return fmt.Errorf("the PMI server says %s (%s)", text, code)
		}
	}
	return fmt.Errorf("the PMI server returns code %s", code)
}

// number returns the number in a field of an answer.
func number(m message, key string) (int, error) {
	text, _ := m.get(key)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the PMI server's answer %s has %s=%q, which is no number: %w", m.command, key, text, errMalformed)
	}
	return n, nil
}
