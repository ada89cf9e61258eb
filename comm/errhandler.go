package comm

// Errhandler is told the error of a call on a communicator, once, before the call
// returns it (MPI_Comm_create_errhandler). It runs in the goroutine of the call and
// may use the communicator.
type Errhandler func(c *Comm, err error)

// ErrorsReturn does nothing: the call returns its error (MPI_ERRORS_RETURN). It is
// the handler of communicators unless another is set.
func ErrorsReturn(*Comm, error) {}

// ErrorsAreFatal logs the error and ends the process (MPI_ERRORS_ARE_FATAL).
func ErrorsAreFatal(c *Comm, err error) {
	c.job.Fatal(err, "communicator", c.members.Context)
}

// SetErrhandler sets what is done with errors of calls on c, and of calls that
// create windows on it (MPI_Comm_set_errhandler); nil is ErrorsReturn. It is local.
func (c *Comm) SetErrhandler(h Errhandler) { c.errhandler.Store(&h) }

// Errhandler returns the error handler of c (MPI_Comm_get_errhandler).
func (c *Comm) Errhandler() Errhandler {
	if h := c.errhandler.Load(); h != nil && *h != nil {
		return *h
	}
	return ErrorsReturn
}

// CallErrhandler has the error handler of c told of err, unless that is nil
// (MPI_Comm_call_errhandler).
func (c *Comm) CallErrhandler(err error) {
	if err != nil {
		c.Errhandler()(c, err)
	}
}

// handle tells c's handler of the error of an exported call, which starts with
//
//	defer c.handle(&err)
func (c *Comm) handle(err *error) {
	c.CallErrhandler(*err)
}
