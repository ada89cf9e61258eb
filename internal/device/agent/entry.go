package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// Entry is a rank that has entered, until Close. Its methods may be called from any goroutine. Once the server is gone
// the rank is served no more, until Return.
type Entry struct {
	*loader.Shared
	path   string
	socket int
	as     request
	most   int // chunks
	mode   atomic.Int32

	// turn keeps returning apart from all that speaks with the server.
	turn  sync.RWMutex
	line  *line
	files map[int]int // descriptors of the chunks that are installed
}

// patience is how long a rank waits for a reply.
const patience = 10 * time.Second

// Enter has the server at a path serve this process's UDP socket, which is bound to an address and port of the
// interface with that index in the goroutine's network namespace, and requests of so many sessions. The socket has to stay
// open until Close. It blocks until the server has replied, for up to 10 seconds, or until ctx ends. An error has a class of
// mpierr, and says why the rank may not enter.
func Enter(ctx context.Context, path string, socket, ifindex, slots int) (*Entry, error) {
	e := &Entry{path: path, socket: socket, as: request{Kind: enter, Interface: uint32(ifindex), Slots: uint32(slots)}, files: map[int]int{}}
	l, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	e.line = l
	defer context.AfterFunc(ctx, l.fail)()
	r, files, err := l.ask(e.as, socket)
	if err != nil {
		return nil, errors.Join(enterError(err), l.close())
	}
	e.most = int(r.Most)
	e.mode.Store(int32(r.Mode))
	var maps []*ebpf.Map
	for i, fd := range files {
		m, err := ebpf.NewMapFromFD(fd)
		if err != nil { // it has closed fd
			closeFiles(files[i+1:])
			for _, m := range maps {
				_ = m.Close()
			}
			return nil, errors.Join(enterError(fmt.Errorf("use a map that the agent has passed: %w", err)), l.close())
		}
		maps = append(maps, m)
	}
	if e.Shared, err = loader.NewShared(maps, e); err != nil {
		return nil, errors.Join(enterError(err), l.close())
	}
	return e, nil
}

// Return has a server serve the rank again, by the same tables and memory, after Lost. Else it is as Enter. Until it has
// returned the tables and memory stay as they are, whoever asks for a change.
func (e *Entry) Return(ctx context.Context) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	l, err := dial(ctx, e.path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, l.fail)()
	files := []int{e.socket}
	for _, m := range e.Maps() {
		files = append(files, m.FD())
	}
	r, passed, err := l.ask(e.as, files...)
	closeFiles(passed)
	for i, file := range e.files {
		if err == nil {
			err = l.install(i, file)
		}
	}
	if err == nil && int(r.Most) != e.most {
		err = fmt.Errorf("it has room for %d chunks of memory, and the one before had for %d", r.Most, e.most)
	}
	if err != nil {
		return errors.Join(enterError(err), l.close())
	}
	e.line = l
	e.mode.Store(int32(r.Mode))
	return nil
}

func enterError(err error) error {
	if known := (*mpierr.Error)(nil); errors.As(err, &known) {
		return err
	}
	return mpierr.New("enter", mpierr.Unsupported, mpierr.NoRank, "%w", err)
}

// Mode returns where the program runs that serves the rank, or did last.
func (e *Entry) Mode() loader.Mode { return loader.Mode(e.mode.Load()) }

// Lost is closed once the server has ended the service or is gone, or has failed to reply.
func (e *Entry) Lost() <-chan struct{} {
	e.turn.RLock()
	defer e.turn.RUnlock()
	return e.line.lost
}

// Close ends the service: when it returns, frames to the rank go to its socket, unless the server has not replied
// for 10 seconds. Return must not run meanwhile.
func (e *Entry) Close() error {
	e.turn.Lock()
	defer e.turn.Unlock()
	err := e.line.close()
	for _, file := range e.files {
		_ = unix.Close(file)
	}
	clear(e.files)
	return errors.Join(err, e.Shared.Close())
}

// NewChunk implements loader.Chunks. It fails while there is no server.
func (e *Entry) NewChunk(size int) (file int, err error) {
	e.turn.RLock()
	defer e.turn.RUnlock()
	_, files, err := e.line.ask(request{Kind: memory, Value: uint64(size)})
	if err != nil {
		return -1, err
	}
	if len(files) != 1 {
		closeFiles(files)
		return -1, fmt.Errorf("the agent has passed %d files of memory, and not 1", len(files))
	}
	return files[0], nil
}

// Most implements loader.Chunks.
func (e *Entry) Most() int { return e.most }

// Install implements loader.Chunks. While there is no server it has an effect when the rank has returned.
func (e *Entry) Install(i, file int) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	kept, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("keep memory: %w", err)
	}
	if err := e.line.install(i, file); err != nil && !errors.Is(err, errLost) {
		_ = unix.Close(kept)
		return err
	}
	e.files[i] = kept
	return nil
}

// Remove implements loader.Chunks.
func (e *Entry) Remove(i int) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	if err := e.line.ends(request{Kind: remove, Value: uint64(i)}); err != nil {
		return err
	}
	if file, there := e.files[i]; there {
		_ = unix.Close(file)
		delete(e.files, i)
	}
	return nil
}

// Quiesce implements loader.Chunks.
func (e *Entry) Quiesce() error {
	e.turn.RLock()
	defer e.turn.RUnlock()
	return e.line.ends(request{Kind: quiesce})
}

var _ loader.Chunks = (*Entry)(nil)

// line is a connection to a server.
type line struct {
	conn *net.UnixConn
	lost chan struct{}
	over atomic.Bool // the server has ended the connection, as it does once the rank is served no more
	once sync.Once
	read sync.WaitGroup

	asking  sync.Mutex // one request at a time; its replies come in order
	replies chan packet
}

type packet struct {
	bytes []byte
	files []int
}

// dial reaches the server at a path. Its errors say what to do.
func dial(ctx context.Context, path string) (l *line, err error) {
	defer func() {
		if err != nil {
			err = enterError(fmt.Errorf("reach the agent at %s: %w", path, err))
		}
	}()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", path)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("%w: none is there, root starts one by `xdprma agent`", err)
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("%w: its flags --mode and --group say who may", err)
	case err != nil:
		return nil, err
	}
	l = &line{conn: c.(*net.UnixConn), lost: make(chan struct{}), replies: make(chan packet, 1)}
	switch user, err := peerOf(l.conn); {
	case err != nil:
		return nil, errors.Join(err, c.Close())
	case user != 0 && int(user) != os.Geteuid():
		return nil, errors.Join(fmt.Errorf("it is of user %d, as this user namespace has it, and neither of root nor of this process's user %d", user, os.Geteuid()), c.Close())
	}
	l.read.Go(l.listen)
	return l, nil
}

// listen reads replies, and learns that the server is gone.
func (l *line) listen() {
	for {
		b, files, err := receive(l.conn)
		if err != nil {
			closeFiles(files)
			l.over.Store(errors.Is(err, io.EOF))
			l.fail()
			return
		}
		select {
		case l.replies <- packet{b, files}:
		default: // nobody has asked
			closeFiles(files)
			l.fail()
			return
		}
	}
}

func (l *line) fail() { l.once.Do(func() { close(l.lost); _ = l.conn.Close() }) }

// await waits until the server has ended the connection.
func (l *line) await() {
	select {
	case <-l.lost:
	case <-time.After(patience):
		l.fail()
	}
}

// close has the server end the service, and waits until it has.
func (l *line) close() error {
	_ = l.conn.CloseWrite()
	l.await()
	l.read.Wait()
	select {
	case p := <-l.replies:
		closeFiles(p.files)
	default:
	}
	return nil
}

var errLost = errors.New("the agent is gone")

// ask makes a request, and returns the reply with its descriptors, of which there are none after an error.
func (l *line) ask(r request, files ...int) (said, []int, error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	r.ABI = abi
	if err := send(l.conn, put(r), files); err != nil {
		l.await() // the server may be about to end the service
		return said{}, nil, fmt.Errorf("%w: %w", errLost, err)
	}
	select {
	case p := <-l.replies:
		answer, err := parseReply(p.bytes)
		if err != nil {
			closeFiles(p.files)
			return answer, nil, err
		}
		return answer, p.files, nil
	case <-l.lost:
		return said{}, nil, errLost
	case <-time.After(patience):
		l.fail()
		return said{}, nil, fmt.Errorf("the agent has not replied for %v", patience)
	}
}

func (l *line) install(i, file int) error {
	_, files, err := l.ask(request{Kind: install, Value: uint64(i)}, file)
	closeFiles(files)
	return err
}

// dying is how long a process that was killed may take until its links are gone, which its connections outlive or not.
const dying = 100 * time.Millisecond

// ends is ask for what happens by itself where the server ends: then no program runs for this rank. A server
// that does not reply may be stopped, and its programs run.
func (l *line) ends(r request) error {
	_, files, err := l.ask(r)
	closeFiles(files)
	if errors.Is(err, errLost) && l.over.Load() {
		time.Sleep(dying)
		return nil
	}
	return err
}
