// Package kubernetes tests the manifests and the image beside it: that they are what Kubernetes
// takes, and that containers made from them are a job.
package kubernetes
