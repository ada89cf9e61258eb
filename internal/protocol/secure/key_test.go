package secure

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// counting returns bytes that count up from first.
func counting(first byte) (b [32]byte) {
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

const countingText = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

func TestKeysAreReadAsTheyAreWritten(t *testing.T) {
	key := Key(counting(0))
	for _, text := range []string{countingText, " \n\t" + countingText + "\r\n", strings.ToUpper(countingText)} {
		if got, err := ParseKey(text); err != nil || got != key {
			t.Errorf("%q: %s, %v", text, got.Text(), err)
		}
	}
	if got := key.Text(); got != countingText {
		t.Errorf("text %s", got)
	}
	if a, b := NewKey(), NewKey(); a == b || a == (Key{}) {
		t.Errorf("two new keys: %s, %s", a.Text(), b.Text())
	}
}

func TestTextThatIsNoKeyIsRefusedAndNotQuoted(t *testing.T) {
	for _, text := range []string{"", countingText[:63], countingText + "0", countingText[:32] + " " + countingText[32:],
		countingText[:63] + "g", "0x" + countingText[:62], strings.Repeat("é", 32)} {
		k, err := ParseKey(text)
		if err == nil || k != (Key{}) {
			t.Errorf("%q: %s, %v", text, k.Text(), err)
			continue
		}
		if !strings.Contains(err.Error(), "xdprma key") || len(text) > 0 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestKeysDoNotPrintThemselves(t *testing.T) {
	key := Key(counting(0x40))
	within := struct{ Key *Key }{&key}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%d", "%q"} {
		if got := fmt.Sprintf(format, key); got != "a job key" {
			t.Errorf("%s: %s", format, got)
		}
		if got := fmt.Sprintf(format, &key); got != "a job key" {
			t.Errorf("%s of a pointer: %s", format, got)
		}
		if got := fmt.Sprintf(format, within); strings.Contains(strings.ToLower(got), "4041") {
			t.Errorf("%s within a struct: %s", format, got)
		}
	}
}

func TestLevelsHaveNames(t *testing.T) {
	for _, l := range []Level{None, Sign} {
		got, err := ParseLevel(l.String())
		if err != nil || got != l || !strings.Contains(LevelNames, l.String()) {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	for _, name := range []string{"", "Sign", "auto", "2"} {
		if l, err := ParseLevel(name); err == nil || !strings.Contains(err.Error(), LevelNames) {
			t.Errorf("%q: %v, %v", name, l, err)
		}
	}
	if l := Seal + 1; l.Valid() || l.String() != "level 3" {
		t.Errorf("%v is valid: %t", l, l.Valid())
	}
}

// TestSecretsOfARun has the vectors of an independent HKDF, Python's hmac.
func TestSecretsOfARun(t *testing.T) {
	key, run := Key(counting(0)), Run(counting(0x80))
	got := key.Secrets(run)
	if fmt.Sprintf("%016x", got.Job) != "98b32f6fcd533716" || hex.EncodeToString(got.Hello[:]) != "e2c65e4864f54d7f8b0a6a44d8077278" ||
		hex.EncodeToString(got.PSK[:]) != "8b03b2fa1c2ce5096d5c5de3e9b0ac31f67eb6048dbb61126750056285ebd34e" {
		t.Errorf("got job %016x, hello %x, psk %x", got.Job, got.Hello, got.PSK)
	}
	otherRun, otherKey := run, key
	otherRun[31] ^= 1
	otherKey[0] ^= 1
	for _, other := range []Secrets{key.Secrets(otherRun), otherKey.Secrets(run)} {
		if other.Job == got.Job || other.Hello == got.Hello || other.PSK == got.PSK {
			t.Error("two runs or two keys have a secret in common")
		}
	}
}
