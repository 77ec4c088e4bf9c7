"""The launcher for Kubernetes: each runner is a pod with a secret."""
