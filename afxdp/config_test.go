package afxdp

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConfigDefaults(t *testing.T) {
	c, err := Config{IfIndex: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		IfIndex: 1, RxChunks: 2048, TxChunks: 2048, ChunkSize: 4096,
		FillSize: 2048, CompletionSize: 2048, RxSize: 2048, TxSize: 2048,
		MaxFrame: 9216, SendBuffer: 2048 * 4096, TxBudget: 64, Patience: 10 * time.Second,
	}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	c, err = Config{IfIndex: 1, RxChunks: 100, TxChunks: 5, TxBudget: 10000}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.FillSize != 128 || c.RxSize != 128 || c.TxSize != 32 || c.CompletionSize != 32 || c.TxBudget != 32 {
		t.Errorf("rings of %+v", c)
	}
}

func TestConfigRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"no interface":           {},
		"unknown interface":      {Interface: "no such interface"},
		"negative queue":         {IfIndex: 1, Queue: -1},
		"negative descriptor":    {IfIndex: 1, FD: -1},
		"chunk too small":        {IfIndex: 1, ChunkSize: 1024},
		"chunk above a page":     {IfIndex: 1, ChunkSize: 2 * os.Getpagesize()},
		"chunk not a power":      {IfIndex: 1, ChunkSize: 3000},
		"negative chunks":        {IfIndex: 1, RxChunks: -1},
		"too many chunks":        {IfIndex: 1, TxChunks: maxRing + 1},
		"ring not a power":       {IfIndex: 1, RxSize: 100},
		"fill ring too small":    {IfIndex: 1, RxChunks: 65, FillSize: 64},
		"completions too few":    {IfIndex: 1, TxSize: 64, CompletionSize: 32},
		"frame below a chunk":    {IfIndex: 1, MaxFrame: 100},
		"frame beyond the limit": {IfIndex: 1, MaxFrame: 1 << 20},
		"unknown mode":           {IfIndex: 1, ZeroCopy: 3},
		"negative send buffer":   {IfIndex: 1, SendBuffer: -1},
		"negative budget":        {IfIndex: 1, TxBudget: -1},
		"negative patience":      {IfIndex: 1, Patience: -1},
		"too many sharers":       {IfIndex: 1, Sharers: maxSharers + 1},
	} {
		if _, err := Open(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), "afxdp: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestExplain(t *testing.T) {
	plain, multi, force := Config{Interface: "eth0"}, Config{Interface: "eth0", MultiBuffer: true}, Config{IfIndex: 7, ZeroCopy: Force}
	for _, c := range []struct {
		at     step
		errno  unix.Errno
		config Config
		want   string // "" for no hint
	}{
		{stepSocket, unix.EPERM, plain, "CAP_NET_RAW"},
		{stepSocket, unix.EAFNOSUPPORT, plain, "CONFIG_XDP_SOCKETS"},
		{stepSocket, unix.EMFILE, plain, "ulimit -n"},
		{stepAdopt, unix.EBUSY, plain, "nothing was set up"},
		{stepMemory, unix.ENOMEM, plain, "RLIMIT_MEMLOCK"},
		{stepRegister, unix.ENOBUFS, plain, "CAP_IPC_LOCK"},
		{stepRegister, unix.EINVAL, plain, ""},
		{stepRings, unix.ENOMEM, plain, "fewer queues (XDPRMA_QUEUES)"},
		{stepBind, unix.EBUSY, plain, "another AF_XDP socket is bound to this queue"},
		{stepBind, unix.EOPNOTSUPP, plain, "try Copy"},
		{stepBind, unix.EOPNOTSUPP, force, "no zero-copy"},
		{stepBind, unix.ENODEV, plain, "no such interface"},
		{stepBind, unix.ENETDOWN, plain, "set the interface up"},
		{stepBind, unix.EINVAL, plain, "no such queue"},
		{stepBind, unix.EINVAL, multi, "Linux 6.6"},
		{stepBind, unix.EIO, plain, ""},
	} {
		err := explain(c.at, c.errno, &c.config)
		if !errors.Is(err, c.errno) {
			t.Errorf("%v does not wrap %v", err, c.errno)
		}
		text := err.Error()
		if !strings.Contains(text, c.config.name()) || !strings.Contains(text, string(c.at)) || !strings.Contains(text, c.want) {
			t.Errorf("%q lacks the interface, the step %q or %q", text, c.at, c.want)
		}
		if c.want == "" && !strings.HasSuffix(text, c.errno.Error()) {
			t.Errorf("%q has an unexpected hint", text)
		}
	}
}
