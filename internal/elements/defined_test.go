package elements

import "testing"

// TestThereIsAKernelWhereAnOperatorIsDefined holds the kernels to what operators say of
// themselves.
func TestThereIsAKernelWhereAnOperatorIsDefined(t *testing.T) {
	for o := range opCount {
		for b := range basicCount {
			if there, defined := kernels[o][b] != nil, o.Check(b) == 0; there != defined {
				t.Errorf("%s of %s: defined %t, and there is a kernel %t", o, b, defined, there)
			}
		}
	}
}
