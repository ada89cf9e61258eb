package rma

import (
	"reflect"
	"testing"
	"time"
)

// Each field of a Place that a program gives counts.
func TestPlaceIsTakenWhole(t *testing.T) {
	without, err := (&Config{Place: &Place{}}).place()
	if err != nil {
		t.Fatal(err)
	}
	fields := reflect.TypeFor[Place]()
	for i := range fields.NumField() {
		var p Place
		switch f := reflect.ValueOf(&p).Elem().Field(i).Addr().Interface().(type) {
		case *int:
			*f = 3
		case *uint64:
			*f = 3
		case *bool:
			*f = true
		case *string:
			*f = "seal"
		case *time.Duration:
			*f = time.Hour
		case **[32]byte:
			*f = new([32]byte)
		default:
			t.Fatalf("this test knows no value of %s", fields.Field(i).Name)
		}
		if with, err := (&Config{Place: &p}).place(); err != nil {
			t.Errorf("the field %s is not taken: %v", fields.Field(i).Name, err)
		} else if reflect.DeepEqual(with, without) {
			t.Errorf("the field %s of Place does not count: Config.place does not take it", fields.Field(i).Name)
		}
	}
}
