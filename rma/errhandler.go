package rma

// Errhandler is told the error of a call on a window, once, before the call
// returns it (MPI_Win_create_errhandler, section 11.6.1). It runs in the goroutine
// of the call and may use the window.
type Errhandler func(w *Win, err error)

// ErrorsReturn does nothing: the call returns its error (MPI_ERRORS_RETURN). It is
// the handler of a window unless another is set.
func ErrorsReturn(*Win, error) {}

// ErrorsAreFatal logs the error and ends the process (MPI_ERRORS_ARE_FATAL), by
// Config.Exit if that is set.
func ErrorsAreFatal(w *Win, err error) {
	w.job.Fatal(err, "window", w.own.ID(), "name", w.Name())
}

// SetErrhandler sets what is done with errors of calls on w
// (MPI_Win_set_errhandler); nil is ErrorsReturn. It is local. Errors of calls that
// create windows go to the handler of the communicator, those of Dup to the window's, which the
// duplicate has, too.
func (w *Win) SetErrhandler(h Errhandler) { w.errhandler.Store(&h) }

// Errhandler returns the error handler of w (MPI_Win_get_errhandler).
func (w *Win) Errhandler() Errhandler {
	if h := w.errhandler.Load(); h != nil && *h != nil {
		return *h
	}
	return ErrorsReturn
}

// CallErrhandler has the error handler of w told of err, unless that is nil
// (MPI_Win_call_errhandler).
func (w *Win) CallErrhandler(err error) {
	if err != nil {
		w.Errhandler()(w, err)
	}
}

// report tells w's handler of an error and returns it. Every exported call either
// returns what report returns or starts with
//
//	defer w.handle(&err)
//
// and calls no other exported call.
func (w *Win) report(err error) error {
	if err != nil {
		w.CallErrhandler(err)
	}
	return err
}

func (w *Win) handle(err *error) { _ = w.report(*err) }
