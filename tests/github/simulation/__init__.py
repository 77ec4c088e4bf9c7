"""The runner manager in a simulated world: fakes of GitHub and Kubernetes, virtual time, seeded faults and crashes."""
