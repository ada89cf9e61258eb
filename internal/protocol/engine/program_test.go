package engine

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// programs is a fabric whose ranks have an XDP program that reaches testWindow.
type programs struct {
	*ranks
	tables []*twin.Program
	memory [][]byte           // of the slots of tables
	slots  []map[uint64]int32 // by rank and session
	mode   programMode        // of all ranks

	// admit, if not nil, is asked for each frame whether it arrives. It is called before
	// the program looks at it, and for what the program answers.
	admit   func(from, to int, payload []byte) bool
	stopped []bool               // only the program of the rank runs
	held    func(id uint64) bool // of sessions: Quiesced is not called; may be nil
	lost    []int                // ranks whose answers were found to get lost
	reasons [twin.NumReasons]int
}

// programMode says what becomes of express frames before user space.
type programMode int

const (
	runs   programMode = iota
	absent             // user space gets all
	mute               // it executes, and its answers vanish
)

func newPrograms(t testing.TB, ranks, memory int, change func(*Config)) *programs {
	p := &programs{slots: make([]map[uint64]int32, ranks), tables: make([]*twin.Program, ranks), memory: make([][]byte, ranks), stopped: make([]bool, ranks)}
	memories := make([][]byte, ranks)
	p.ranks = newRanks(t, ranks, memory, func(c *Config) {
		memories[c.Rank] = p.equip(c, memory)
		if change != nil {
			change(c)
		}
	})
	p.mem, p.Filter, p.Told = memories, p.arrive, p.announced
	return p
}

// equip gives a rank tables and a window that its program reaches, and returns the memory
// of that.
func (p *programs) equip(c *Config, memory int) []byte {
	p.memory[c.Rank] = make([]byte, c.Size*express.SlotLen)
	c.Express = express.NewTables(p.memory[c.Rank], make([]byte, express.Windows*express.WindowLen))
	c.AnswersLost = func(rank int) { p.lost = append(p.lost, rank) }
	p.tables[c.Rank], p.slots[c.Rank] = twin.New(c.Express), map[uint64]int32{}
	c.Windows = &windows.Table{}
	return p.show(c.Rank, c.Size, c.Windows, testWindow, memory)
}

// show gives a rank a window that its program reaches, and returns the memory of that.
func (p *programs) show(rank, ranks int, table *windows.Table, id uint32, memory int) []byte {
	mem, lock := make([]byte, memory), windows.LockWordIn(make([]byte, windows.LockWordLen))
	if p.tables[rank].Expose(express.Window{ID: id}, mem, lock, nil) < 0 {
		p.T.Fatal("the place of the window is taken")
	}
	w, err := windows.New(windows.Config{
		ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(mem), Size: memory, DispUnit: 1, GroupSize: ranks,
		Host: &windows.Host{Lock: lock, Ranks: []int{rank, windows.InKernel}},
	})
	if err == nil {
		err = table.Add(w)
	}
	if err != nil {
		p.T.Fatal(err)
	}
	return mem
}

// free takes back what show has done.
func (p *programs) free(rank int, id uint32) {
	p.e[rank].ForgetWindow(id)
	p.e[rank].Windows().Remove(id)
	p.tables[rank].Retract(id)
}

func (p *programs) announced(rank int, opened []Opened, quiescing, closed []uint64) {
	for _, s := range opened {
		if s.Slot >= 0 {
			p.slots[rank][s.ID] = s.Slot
		}
	}
	for _, id := range quiescing {
		delete(p.slots[rank], id)
		if p.held == nil || !p.held(id) {
			p.e[rank].Quiesced(id)
		}
	}
}

// arrive is the way of a frame up to the engine.
func (p *programs) arrive(from, to int, payload []byte) int {
	if p.admit != nil && !p.admit(from, to, payload) {
		return 0
	}
	if p.mode != absent && isExpress(payload) {
		slot, ok := p.slots[to][le.Uint64(payload[8:])]
		if !ok {
			slot = -1
		}
		frame := bytes.Clone(payload)
		n, verdict, why := p.tables[to].Serve(int(slot), frame)
		p.reasons[why]++
		switch {
		case verdict == twin.Answer && p.mode == mute, verdict == twin.Drop:
			return 0
		case verdict == twin.Answer && (p.admit == nil || p.admit(to, from, frame[:n])):
			p.Deliver(to, from, frame[:n])
			return 0
		case verdict == twin.Answer:
			return 0
		case verdict == twin.Hand && !p.stopped[to]:
			p.Frames++
			if p.e[to].ReceiveHanded(frame); !bytes.Equal(frame, payload) {
				p.T.Error("the engine has written to an answer in the program's memory")
			}
			return 0
		}
	}
	if p.stopped[to] {
		return 0
	}
	return 1
}

func isExpress(b []byte) bool { return kindOfFrame(b) == wire.KindExpress }

func isRequest(b []byte) bool { return isExpress(b) && b[6]&wire.FlagResponse == 0 }

func isAnswer(b []byte) bool { return isExpress(b) && b[6]&wire.FlagResponse != 0 }

// access is fabric.access to a window that the program reaches.
func (p *programs) access(from, to int) *onesided.Access {
	a := p.ranks.access(from, to)
	a.SetReach(true)
	return a
}
