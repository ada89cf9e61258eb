package userspace_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// The privileged process attaches a program, pins its maps, makes a socket, and starts a rank as
// another user. It stays until the rank has ended, because the program goes with it. The rank
// locks some megabytes of memory, which its ulimit -l must allow.
func Example_privileged() {
	const uid, dir = 1000, "/sys/fs/bpf/rank"
	program, err := loader.Attach(loader.Options{
		Interface: "eth0",
		Address:   netip.MustParseAddr("192.0.2.1"),
		Port:      7770,
		Mode:      loader.Generic,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer program.Close()

	if err := os.Mkdir(dir, 0o755); err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	maps := program.Maps()
	for name, m := range map[string]*ebpf.Map{
		"xsks": maps.Sockets, "sessions": maps.Sessions, "counters": maps.Counters, "config_map": maps.Config, "hello_map": maps.Hellos,
	} {
		file := filepath.Join(dir, name)
		if err := m.Pin(file); err != nil {
			log.Fatal(err)
		}
		if err := os.Chown(file, uid, uid); err != nil {
			log.Fatal(err)
		}
	}
	socket, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // one for each queue
	if err != nil {
		log.Fatal(err)
	}

	rank := exec.Command("./prog")
	rank.Stdout, rank.Stderr = os.Stdout, os.Stderr
	rank.ExtraFiles = []*os.File{os.NewFile(uintptr(socket), "AF_XDP")} // file 3 of the rank
	rank.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := rank.Run(); err != nil {
		log.Print(err)
	}
}

// The rank takes the program by its maps, and the socket as file 3. Its place in the job is in the
// environment, as for other ranks.
func Example_unprivileged() {
	ctx := context.Background()
	program, err := loader.FromPinned("/sys/fs/bpf/rank", loader.Generic)
	if err != nil {
		log.Fatal(err)
	}
	const socket = 3
	node, err := rma.Join(ctx, rma.Config{Network: &userspace.Config{
		Address:   program.LocalAddr().Addr(),
		Port:      program.LocalAddr().Port(),
		Queues:    1,
		Program:   program,
		SocketFDs: []int{socket},
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := unix.Close(socket); err != nil { // the library has a duplicate
		log.Fatal(err)
	}
	fmt.Println("frames travel by", node.Mode())
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}
}
