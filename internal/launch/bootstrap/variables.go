package bootstrap

// Variable is an environment variable that a rank reads.
type Variable struct{ Name, Meaning string }

// Contract lists the variables, with what holds where a variable is not set.
var Contract = []Variable{
	{EnvRank, "the rank of this process, from 0; else the launcher's variable says it"},
	{EnvSize, "the number of ranks; else the launcher's variable says it"},
	{EnvJob, "1 to 16 hexadecimal digits, not zero, the same for all ranks and chosen at random for each job; it is also the secret that admits a rank to the rendezvous, and frames carry only a hash of it"},
	{EnvRendezvous, "where the ranks find each other: host:port, tcp:host:port or unix:/path"},
	{EnvServe, "0: something else than rank 0 serves the rendezvous, as `xdprma run` does; 1, the default: rank 0 does"},
	{EnvPatience, "how long to try to reach the rendezvous, such as 90s or 10m; by default a minute, unless the program sets a limit of its own"},
	{EnvTransport, "auto (the default), xdp, xdp-native, xdp-generic or udp"},
	{EnvInterface, "the network interface; by default that of the address"},
	{EnvAddress, "the IP address; by default the best of the interface's or, without an interface, that from which the rendezvous is reached"},
	{EnvPort, "the UDP port, 0 for any; by default 7770 on an interface or address that is named, other than loopback's, and else 0"},
	{EnvQueues, "at most so many of the interface's queues are used by XDP, and what arrives by others takes the slower way through the kernel; by default all, up to 64"},
	{EnvHost, "a name for the host: ranks that are told the same one share memory; by default those do that share the running kernel and the network namespace"},
	{EnvFrames, "1: access windows of ranks of the same host by frames too, in this and all ranks of a communicator"},
	{EnvExpress, "off: the XDP program executes no requests; on, the default: it executes small ones where it can"},
	{"XDPRMA_CHECK", "1: look for conflicting accesses to windows"},
}
