package bootstrap

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/userspace"
)

func lookupIn(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func TestEnvironmentGivesThePlaceOrNamesTheMistake(t *testing.T) {
	full := map[string]string{
		EnvRank: "1", EnvSize: "4", EnvJob: "ab", EnvRendezvous: "unix:/x", EnvServe: "0",
		EnvTransport: "xdp-native", EnvInterface: "xr1", EnvAddress: "10.77.0.2", EnvPort: "9000", EnvQueues: "2",
		EnvHost: "left", EnvFrames: "1", EnvExpress: "off", EnvCaps: "keep",
	}
	with := func(name, value string) map[string]string {
		m := map[string]string{}
		for k, v := range full {
			m[k] = v
		}
		m[name] = value
		return m
	}
	plain := Config{Config: userspace.Config{Transport: userspace.Auto}, Size: 1}
	place := func(rank, size int, serve bool) Config {
		c := plain
		c.Rank, c.Size, c.Serve, c.Job, c.Rendezvous = rank, size, serve, 1, "h:1"
		return c
	}
	at := func(ifname, addr string, port uint16) Config {
		c := plain
		c.Interface, c.Port = ifname, port
		if addr != "" {
			c.Address = netip.MustParseAddr(addr)
		}
		return c
	}
	launched := func(rank int, toward string) Config {
		c := plain
		c.Rank, c.Size, c.Serve, c.PMI = rank, 4, rank == 0, PMI{FD: 9, Job: "3.0", Toward: toward}
		return c
	}
	srun := func(name, value string) map[string]string {
		m := map[string]string{"PMI_FD": "9", "PMI_RANK": "3", "PMI_SIZE": "4", "PMI_JOBID": "3.0", "SLURM_PROCID": "3",
			"SLURM_STEP_NUM_TASKS": "4", "SLURM_LAUNCH_NODE_IPADDR": "10.9.0.254"}
		m[name] = value
		return m
	}
	const run = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
	torchrun := func(name, value string) map[string]string {
		m := map[string]string{"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "left", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": run}
		m[name] = value
		return m
	}
	torch := func(rank int, serve bool, rendezvous string, job uint64) Config {
		c := plain
		c.Rank, c.Size, c.Serve, c.Rendezvous, c.Job = rank, 2, serve, rendezvous, job
		return c
	}
	pod := func(index string) map[string]string {
		return map[string]string{"JOB_COMPLETION_INDEX": index, EnvSize: "2", EnvJob: "1", EnvRendezvous: "prog-0.prog:7000"}
	}
	const runJob = 0xd926c59539b7a956 // of run
	patient := place(1, 2, false)
	patient.Patience = 10 * time.Minute
	for name, test := range map[string]struct {
		env  map[string]string
		want Config
		err  string // the error contains it
	}{
		"patience":                {env: map[string]string{EnvRank: "1", EnvSize: "2", EnvJob: "1", EnvRendezvous: "h:1", EnvPatience: "10m"}, want: patient},
		"patience without a unit": {env: with(EnvPatience, "5"), err: `XDPRMA_RENDEZVOUS_TIMEOUT="5" is not a time with its unit, such as 90s`},
		"srun":                    {env: srun("", ""), want: launched(3, "10.9.0.254")},
		"srun, rank 0":            {env: srun("PMI_RANK", "0"), want: launched(0, "10.9.0.254")},
		"mpiexec.hydra": {env: map[string]string{"PMI_FD": "9", "PMI_RANK": "3", "PMI_SIZE": "4", "PMI_JOBID": "3.0", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "left"},
			want: launched(3, "left")},
		"mpiexec of one in srun":      {env: srun("PMI_SIZE", "1"), err: "PMI_RANK=3 is not below PMI_SIZE=1"},
		"PMI of one":                  {env: map[string]string{"PMI_FD": "9", "PMI_RANK": "0", "PMI_SIZE": "1"}, want: plain},
		"PMI in a job of the user's":  {env: map[string]string{"PMI_FD": "9", "PMI_RANK": "0", "PMI_SIZE": "2", EnvRendezvous: "h:1", EnvJob: "1"}, want: place(0, 2, true)},
		"PMI beside a rank":           {env: srun(EnvRank, "1"), err: "XDPRMA_RENDEZVOUS is not set"},
		"PMI rank":                    {env: srun("PMI_RANK", "4"), err: "PMI_RANK=4 is not below PMI_SIZE=4"},
		"PMI without a rank":          {env: srun("PMI_RANK", ""), err: "PMI_FD is set, but PMI_RANK is not"},
		"PMI without a size":          {env: srun("PMI_SIZE", ""), err: "PMI_FD is set, but PMI_SIZE is not"},
		"PMI descriptor":              {env: srun("PMI_FD", "x"), err: `PMI_FD="x" is not a number`},
		"torchrun":                    {env: torchrun("", ""), want: torch(1, false, "left:29501", runJob)},
		"torchrun, rank 0":            {env: torchrun("RANK", "0"), want: torch(0, true, ":29501", runJob)},
		"torchrun by srun":            {env: torchrun("PMI_FD", "9"), want: torch(1, false, "left:29501", runJob)},
		"torchrun of one":             {env: map[string]string{"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "left", "MASTER_PORT": "29500"}, want: plain},
		"torchrun with a job":         {env: torchrun(EnvJob, "5"), want: torch(1, false, "left:29501", 5)},
		"torchrun with a name":        {env: torchrun("TORCHELASTIC_RUN_ID", "mine"), err: `XDPRMA_JOB is not set, and TORCHELASTIC_RUN_ID="mine" is no UUID`},
		"torchrun's port":             {env: torchrun("MASTER_PORT", "65535"), err: `MASTER_PORT="65535" is not a number from 1 to 65534`},
		"torchrun's rank":             {env: torchrun("RANK", "2"), err: "RANK=2 is not below WORLD_SIZE=2"},
		"a rank of something else":    {env: map[string]string{"RANK": "3", "WORLD_SIZE": "4"}, want: plain},
		"torchrun, rank 0 of an addr": {env: map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.9.0.1", "MASTER_PORT": "29500", EnvJob: "1"}, want: torch(0, true, "10.9.0.1:29501", 1)},
		"pod":                         {env: pod("1"), want: torch(1, false, "prog-0.prog:7000", 1)},
		"pod 0":                       {env: pod("0"), want: torch(0, true, ":7000", 1)},
		"pod beyond":                  {env: pod("2"), err: "JOB_COMPLETION_INDEX=2 is not below XDPRMA_SIZE=2"},
		"no patience":                 {env: with(EnvPatience, "0s"), err: "XDPRMA_RENDEZVOUS_TIMEOUT"},
		"singleton":                   {env: nil, want: plain},
		"full": {env: full, want: Config{
			Rank:       1,
			Size:       4,
			Job:        0xab,
			Rendezvous: "unix:/x",
			Host:       "left",
			Frames:     true,
			NoExpress:  true,
			KeepCaps:   true,
			Config:     userspace.Config{Transport: userspace.XDPNative, Interface: "xr1", Address: netip.MustParseAddr("10.77.0.2"), Port: 9000, Queues: 2},
		}},
		"rank 0 serves":      {env: map[string]string{EnvRank: "0", EnvSize: "2", EnvJob: "1", EnvRendezvous: "h:1"}, want: place(0, 2, true)},
		"pmi":                {env: map[string]string{"PMI_RANK": "3", "PMI_SIZE": "4", EnvJob: "1", EnvRendezvous: "h:1"}, want: place(3, 4, false)},
		"open mpi":           {env: map[string]string{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", EnvJob: "1", EnvRendezvous: "h:1"}, want: place(3, 4, false)},
		"slurm":              {env: map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "4", EnvJob: "1", EnvRendezvous: "h:1"}, want: place(3, 4, false)},
		"slurm batch script": {env: map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, want: plain},
		"slurm step": {env: map[string]string{"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "4", EnvJob: "1", EnvRendezvous: "h:1"},
			want: place(1, 2, false)},
		"port of an interface": {env: map[string]string{EnvInterface: "xr1"}, want: at("xr1", "", DefaultPort)},
		"port of an address":   {env: map[string]string{EnvAddress: "fd77::1"}, want: at("", "fd77::1", DefaultPort)},
		"port on loopback":     {env: map[string]string{EnvAddress: "127.0.0.1"}, want: at("", "127.0.0.1", 0)},
		"any port":             {env: map[string]string{EnvInterface: "xr1", EnvPort: "0"}, want: at("xr1", "", 0)},
		"no rank":              {env: map[string]string{EnvSize: "2"}, err: "XDPRMA_RANK is not set"},
		"no size":              {env: map[string]string{EnvRank: "0"}, err: "XDPRMA_SIZE is not set"},
		"no rendezvous":        {env: map[string]string{EnvRank: "0", EnvSize: "2"}, err: "XDPRMA_RENDEZVOUS is not set"},
		"no job":               {env: with(EnvJob, ""), err: "XDPRMA_JOB is not set"},
		"rank not a number":    {env: with(EnvRank, "x"), err: `XDPRMA_RANK="x"`},
		"rank too large":       {env: with(EnvRank, "4"), err: "XDPRMA_RANK=4 is not below XDPRMA_SIZE=4"},
		"size 0":               {env: with(EnvSize, "0"), err: `XDPRMA_SIZE="0"`},
		"job 0":                {env: with(EnvJob, "0"), err: "XDPRMA_JOB"},
		"job too long":         {env: with(EnvJob, "11111111111111111"), err: "XDPRMA_JOB"},
		"rendezvous":           {env: with(EnvRendezvous, "host"), err: "XDPRMA_RENDEZVOUS"},
		"rendezvous port":      {env: with(EnvRendezvous, "host:ssh"), err: "XDPRMA_RENDEZVOUS"},
		"serve":                {env: with(EnvServe, "yes"), err: "XDPRMA_RENDEZVOUS_SERVE"},
		"transport":            {env: with(EnvTransport, "rdma"), err: "XDPRMA_TRANSPORT"},
		"interface":            {env: with(EnvInterface, "../x"), err: "XDPRMA_INTERFACE"},
		"address":              {env: with(EnvAddress, "10.77"), err: "XDPRMA_ADDRESS"},
		"address of all":       {env: with(EnvAddress, "0.0.0.0"), err: "XDPRMA_ADDRESS"},
		"port":                 {env: with(EnvPort, "65536"), err: "XDPRMA_PORT"},
		"capabilities":         {env: with(EnvCaps, "all"), err: `XDPRMA_CAPABILITIES="all" is not drop or keep`},
		"queues":               {env: with(EnvQueues, "0"), err: "XDPRMA_QUEUES"},
		"security":             {env: with(EnvSecurity, "hide"), err: `XDPRMA_SECURITY="hide" is not auto, none, sign or seal`},
		"a key file of srun":   {env: srun(EnvKeyFile, "/nonexistent/key"), err: "XDPRMA_KEY_FILE"},
		"a key of torchrun":    {env: torchrun(EnvKey, "ab"), err: "XDPRMA_KEY: a job key has 64 hexadecimal digits"},
		"a key file of a pod":  {env: map[string]string{"JOB_COMPLETION_INDEX": "1", EnvSize: "2", EnvJob: "1", EnvRendezvous: "h:1", EnvKeyFile: "/nonexistent/key"}, err: "XDPRMA_KEY_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fromVariables(lookupIn(test.env))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.want.Job == 0 { // random
				if got.Job == 0 {
					t.Error("no job id")
				}
				got.Job = 0
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// TestOneOfSeveralIsNoJobOfItsOwn starts ranks as launchers do that know nothing of this
// library: each would be alone and never know.
func TestOneOfSeveralIsNoJobOfItsOwn(t *testing.T) {
	for _, test := range []struct {
		name  string
		env   map[string]string
		names string // the variable that the error is about; empty: no error
	}{
		{"srun, rank 3", map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4"},
		{"srun, rank 0", map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4"},
		{"an old srun", map[string]string{"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, "SLURM_PROCID=2"},
		{"PMI, rank 0", map[string]string{"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_SIZE=2"},
		{"PMI without a size", map[string]string{"PMI_RANK": "1"}, "PMI_RANK=1"},
		{"PMIx", map[string]string{"PMIX_RANK": "1"}, "PMIX_RANK=1"},
		{"Open MPI, rank 0", map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8"}, "OMPI_COMM_WORLD_SIZE=8"},
		{"a pod", map[string]string{"JOB_COMPLETION_INDEX": "1"}, "JOB_COMPLETION_INDEX=1"},
		{"pod 0", map[string]string{"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX=0"},
		{"srun of one", map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, ""},
		{"a batch script", map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, ""},
		{"mpirun of one", map[string]string{"PMI_RANK": "0", "PMI_SIZE": "1", "PMIX_RANK": "0"}, ""},
		{"said to be alone", map[string]string{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", EnvRank: "0", EnvSize: "1"}, ""},
	} {
		_, err := fromVariables(lookupIn(test.env))
		if test.names == "" {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		for _, part := range []string{test.names, EnvRendezvous, EnvJob, EnvRank + "=0", EnvSize + "=1"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want an error with %s", test.name, err, part)
			}
		}
		if told := strings.Contains(fmt.Sprint(err), "srun --mpi=pmi2"); told != strings.Contains(test.name, "srun") && test.name != "PMIx" {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestLauncherIsNamedWhereItsWordIsMissing leaves out what a launcher says, or says something wrong.
func TestLauncherIsNamedWhereItsWordIsMissing(t *testing.T) {
	place := map[string]string{EnvRank: "1", EnvSize: "2", EnvRendezvous: "10.0.0.1:7000", EnvJob: "77"}
	for _, test := range []struct {
		name, value string
		launcher    bool
		want        string
	}{
		{EnvSize, "", true, "XDPRMA_SIZE is not set"},
		{EnvRank, "", true, "XDPRMA_RANK is not set"},
		{EnvRendezvous, "", true, "XDPRMA_RENDEZVOUS is not set, in a job of 2 ranks"},
		{EnvJob, "", true, "XDPRMA_JOB is not set"},
		{EnvRank, "2", false, "XDPRMA_RANK=2 is not below XDPRMA_SIZE=2"},
		{EnvPort, "x", false, `XDPRMA_PORT="x" is not a number from 0 to 65535`},
		{EnvPort, "tcp://10.0.0.1:7000", false, "set enableServiceLinks: false in the pod's spec"},
		{EnvFrames, "yes", false, `XDPRMA_FRAMES="yes" is not 0 or 1`},
		{EnvRendezvous, "10.0.0.1", false, "want host:port"},
		{EnvRendezvous, "fd77::1:7002", false, "an IPv6 address takes brackets: [fd77::1]:7002"},
		{EnvRendezvous, "tcp:fe80::1%eth0:7002", false, "an IPv6 address takes brackets: [fe80::1%eth0]:7002"},
		{EnvRendezvous, "fd77::a", false, "an IPv6 address takes brackets: [fd77::a]:PORT"},
		{EnvRendezvous, "a:b:7002", false, "want host:port"},
		{EnvJob, "0", false, `XDPRMA_JOB="0" is not 1 to 16 hexadecimal digits`},
	} {
		env := maps.Clone(place)
		env[test.name] = test.value
		_, err := fromVariables(lookupIn(env))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "`xdprma run`") != test.launcher {
			t.Errorf("%s=%q: %v, want %q, and a launcher: %v", test.name, test.value, err, test.want, test.launcher)
		}
	}
}

// FromEnvironment reads back the Config that Environ has written.
func TestEnvironRoundTrip(t *testing.T) {
	key := secure.NewKey()
	file := keyFile(t, key.Text(), 0o600)
	for _, v := range Contract {
		if v.write == nil {
			t.Fatalf("the row of %s has no write, which says the variable to the ranks", v.Name)
		}
	}
	roundTrip := func(t interface{ Fatalf(string, ...any) }, c Config) {
		env := map[string]string{}
		for _, e := range c.Environ() {
			name, value, _ := strings.Cut(e, "=")
			env[name] = value
		}
		if got, err := fromVariables(lookupIn(env)); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, c)
		}
	}
	full := Config{
		Config: userspace.Config{Transport: userspace.UDP, Interface: "eth0", Address: netip.MustParseAddr("fd77::1"), Port: 7, Queues: 2},
		Size:   2, Job: 3, Rendezvous: "unix:/a", Serve: true, Patience: 1, JoinTimeout: 2, DeadAfter: 3, SilenceByDefault: 4, Host: "left",
		Frames: true, NoExpress: true, Check: true, KeepCaps: true, Key: &key, KeyFile: file, Security: "seal", Log: "error",
	}
	roundTrip(t, full)
	told := []string{"Rank", "PMI", "Warnings", "meeting", "environment"} // below, and in other ways
	for i := range reflect.TypeFor[Config]().NumField() {
		if name := reflect.TypeFor[Config]().Field(i).Name; reflect.ValueOf(full).Field(i).IsZero() && !slices.Contains(told, name) {
			t.Errorf("this test has no %s, so it does not see whether Environ says it", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Size:      rapid.IntRange(1, MaxRanks).Draw(t, "size"),
			Job:       rapid.Uint64Min(1).Draw(t, "job"),
			Host:      rapid.SampledFrom([]string{"", "left"}).Draw(t, "host"),
			Frames:    rapid.Bool().Draw(t, "frames"),
			NoExpress: rapid.Bool().Draw(t, "no express"),
			KeepCaps:  rapid.Bool().Draw(t, "keep capabilities"),
			Check:     rapid.Bool().Draw(t, "check"),
			Config:    userspace.Config{Transport: rapid.SampledFrom([]userspace.Transport{userspace.Auto, userspace.XDP, userspace.XDPNative, userspace.XDPGeneric, userspace.UDP}).Draw(t, "transport"), Interface: rapid.SampledFrom([]string{"", "eth0"}).Draw(t, "interface"), Port: rapid.Uint16Range(0, 60000).Draw(t, "port"), Queues: rapid.IntRange(0, userspace.MaxQueues).Draw(t, "queues")},
		}
		c.Rank = rapid.IntRange(0, c.Size-1).Draw(t, "rank")
		c.Rendezvous = rapid.SampledFrom([]string{"unix:/a/b", "tcp:h:1", "[::1]:2"}).Draw(t, "rendezvous")
		c.Patience = time.Duration(rapid.IntRange(0, 1e6).Draw(t, "patience"))
		c.Serve = c.Rank == 0 && rapid.Bool().Draw(t, "serve")
		if rapid.Bool().Draw(t, "keyed") {
			c.Key, c.KeyFile = &key, file
		}
		c.Security = rapid.SampledFrom([]Security{"", Auto, "none", "sign", "seal"}).Draw(t, "security")
		c.JoinTimeout = time.Duration(rapid.IntRange(0, 1e6).Draw(t, "join timeout"))
		c.DeadAfter = time.Duration(rapid.IntRange(0, 1e6).Draw(t, "silence"))
		c.SilenceByDefault = time.Duration(rapid.IntRange(0, 1e6).Draw(t, "silence by default"))
		c.Log = rapid.SampledFrom([]string{"", "debug", "error"}).Draw(t, "log")
		if rapid.Bool().Draw(t, "addressed") {
			c.Address = netip.MustParseAddr("fd77::1")
		}
		roundTrip(t, c)
	})
}

// A rank that launches a job has it checked as itself, and passes on nothing else that it was told.
func TestRanksOfARankAreChecked(t *testing.T) {
	for name, value := range map[string]string{EnvRendezvous: "unix:/a", EnvTransport: "udp", EnvPort: "7", EnvFrames: "1", EnvCheck: "1"} {
		t.Setenv(name, value)
	}
	if c, ported, err := ForAll(); err != nil || ported || !reflect.DeepEqual(c, Config{Check: true}) {
		t.Errorf("%+v, %v, %v", c, ported, err)
	}
	t.Setenv(EnvCheck, "2")
	if _, _, err := ForAll(); err == nil || !strings.Contains(err.Error(), EnvCheck) {
		t.Errorf("%s=2: %v", EnvCheck, err)
	}
}

func TestMisspelledVariablesAreWarnedOf(t *testing.T) {
	environ := []string{"XDPRMA_INTERFASE=eth0", "xdprma_port=1", "XDPRMA_RANK=1", "XDPRMA_TEST_RNAK=1", "XDPRMA_COLOUR_OF_PLOTS=red", "HOME=/", "XDPRMA_CHECK=1"}
	want := []string{"XDPRMA_INTERFASE has no meaning: is XDPRMA_INTERFACE meant?", "xdprma_port has no meaning: is XDPRMA_PORT meant?"}
	if got := misspelled(environ); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLoggerHasTheLevelOfTheEnvironment(t *testing.T) {
	ctx := testContext(t)
	for level, least := range map[string]slog.Level{"": slog.LevelWarn, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		c, err := fromVariables(func(name string) string {
			if name == EnvLog {
				return level
			}
			return ""
		})
		log := c.Logger()
		if err != nil || !log.Enabled(ctx, least) || log.Enabled(ctx, least-1) || log.With("a", 1).Enabled(ctx, least-1) {
			t.Errorf("%s=%s: %v, %v", EnvLog, level, log.Handler(), err)
		}
	}
	if _, err := fromVariables(func(name string) string { return map[string]string{EnvLog: "loud"}[name] }); err == nil || !strings.Contains(err.Error(), `XDPRMA_LOG="loud" is not debug, info, warn or error`) {
		t.Errorf("%v", err)
	}
}
