"""What carries out jobs: Python handlers first."""
